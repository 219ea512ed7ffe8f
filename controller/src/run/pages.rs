// SPDX-License-Identifier: Apache-2.0
//! What a `run` tells over HTTP, to Prometheus, curl and `watch`.

use std::io;
use std::net::SocketAddr;

use serde::Serialize;
use trimwire_metrics_http::{Page, Server};

use super::metrics::metrics_text;
use crate::engine::driver::Common;

const HINT: &str = "Metrics are at /metrics, what routes leave out is at /faults, which switches wait for a new program at \
                    /programs, which links were tried at /links";

/// Serves until what it gives is dropped.
pub(super) fn serve(address: SocketAddr, common: Common) -> io::Result<Server> {
    trimwire_metrics_http::serve(address, HINT, move |path| match path {
        "/metrics" => Some(Page::metrics(metrics_text(&common.status()))),
        "/faults" => Some(json(&common.board.change(|status| status.faults.clone()))),
        "/programs" => Some(json(&common.board.change(|status| status.replacing.clone()))),
        "/links" => Some(json(&common.links())),
        _ => None,
    })
}

fn json(value: &impl Serialize) -> Page {
    Page::json(serde_json::to_string(value).unwrap_or_default() + "\n")
}
