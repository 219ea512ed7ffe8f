// SPDX-License-Identifier: Apache-2.0
//! Compiles `proto/` with `protox` (no protoc) and embeds the descriptors for text-format P4Info.

use std::error::Error;
use std::path::PathBuf;

const FILES: [&str; 7] = [
    "p4/v1/p4runtime.proto",
    "p4/config/v1/p4info.proto",
    "gnmi/gnmi.proto",
    "google/rpc/status.proto",
    "google/rpc/code.proto",
    "stratum/p4_role_config.proto",
    "trimwire/switch/v1/admin.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        // P4TypeInfo's maps reach output (text P4Info), so their order has to be fixed.
        .btree_map(".")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
