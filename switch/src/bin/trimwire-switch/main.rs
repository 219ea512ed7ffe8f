// SPDX-License-Identifier: Apache-2.0
//! `trimwire-switch`: the embedded switch on Linux interfaces, with the command line of `simple_switch_grpc`.

mod admin;
mod arguments;
mod bench;
mod metrics;
mod options;
mod pages;
mod report;
mod stf;

use anyhow::{Context as _, anyhow};
use arguments::{Arguments, Command};
use clap::Parser as _;
use options::{Options, TlsFiles};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};
use trimwire_switch::config::FileConfig;
use trimwire_switch::driver::{Driver, Waker};
use trimwire_switch::server::{self, ServeError, ServerOptions, Tls};
use trimwire_switch::{Switch, SwitchConfig};

const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const BAD_INPUT: u8 = 3;

/// The version of BMv2's JSON that the engine was written for, BMv2 1.15.5's; others of the same major version are taken, too.
const JSON_VERSION: &str = "2.24";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let name = words.first().cloned().unwrap_or_default();
    let done = Arguments::try_parse_from(words).and_then(|mut arguments| match arguments.command.take() {
        Some(command) => Ok(carry_out(command)),
        None if arguments.json_version => {
            println!("{JSON_VERSION}");
            Ok(Ok(ExitCode::SUCCESS))
        }
        None => Options::new(arguments, &name).map(|mut options| run(&mut options)),
    });
    match done {
        Ok(Ok(code)) => code,
        Ok(Err((code, error))) => {
            eprintln!("error: {error:#}");
            code.into()
        }
        Err(error) => {
            if let Some(why) = arguments::misplaced(&error) {
                eprintln!("error: {why}");
                return USAGE.into();
            }
            // Help and version go to stdout and are no failure.
            let _ = error.print();
            if error.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS }
        }
    }
}

/// An exit code, and what there is to say where it is that of an error.
type Outcome = Result<ExitCode, (u8, anyhow::Error)>;

/// Whatever a command gives goes to stdout.
fn carry_out(command: Command) -> Outcome {
    let text = match command {
        Command::Stf(arguments) => {
            let passed = stf::run(&arguments).map_err(|error| (BAD_INPUT, error))?;
            return Ok(if passed { ExitCode::SUCCESS } else { FAILURE.into() });
        }
        Command::Admin(arguments) => admin::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Completions(arguments) => pages::completions(&arguments),
        Command::Man(arguments) => pages::man(arguments),
    };
    print!("{}", text.map_err(|error| (FAILURE, error))?);
    Ok(ExitCode::SUCCESS)
}

fn run(options: &mut Options) -> Outcome {
    let failed = |error| (FAILURE, error);
    start_log(options).map_err(failed)?;
    if let Some(path) = &options.arguments.config {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read '{}'", path.display()))
            .map_err(|error| (BAD_INPUT, error))?;
        let file = FileConfig::parse(&text, &path.display().to_string())
            .map_err(|error| (BAD_INPUT, error.into()))?;
        options.settle(&file);
    }
    for notice in &options.notices {
        tracing::warn!("{notice}");
    }
    let mut switch = Switch::new(SwitchConfig {
        device_id: options.arguments.device_id,
        ports: options.ports.clone(),
        default_port: options.default_port,
        traffic: options.traffic.clone(),
        cpu_port: options.cpu_port,
        seed: options.arguments.seed,
    });
    if let Some(path) = &options.arguments.program {
        std::fs::read(path)
            .map_err(anyhow::Error::from)
            .and_then(|json| Ok(switch.load_pipeline(&json)?))
            .with_context(|| format!("cannot load '{}'", path.display()))
            .map_err(|error| (BAD_INPUT, error))?;
    }
    if options.arguments.check {
        eprintln!("the program and the settings can be used");
        if let Some(pipeline) = switch.pipeline() {
            eprintln!("flow cache: {}", pipeline.flow_cache());
            eprintln!("code: {}", pipeline.runs_as());
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Those on interfaces exist before their first packet, for metrics and the admin service.
    for attachment in &options.attachments {
        switch.configure_port(attachment.port, switch.port_config(attachment.port));
    }
    let switch = Arc::new(Mutex::new(switch));
    let (shared, attachments) = (Arc::clone(&switch), options.attachments.clone());
    let mut driver = match options.arguments.use_files {
        None => Driver::new(shared, attachments),
        Some(seconds) => Driver::with_files(shared, attachments, Duration::from_secs(seconds.into())),
    }
    .map_err(|error| failed(error.into()))?;
    driver.set_threads(options.arguments.threads.into());
    if let Some(folder) = &options.pcap {
        driver.capture(folder).map_err(|error| failed(error.into()))?;
    }
    trace_to(&mut driver, options).map_err(failed)?;
    switch.lock().unwrap_or_else(PoisonError::into_inner).set_tracing(options.tracing);
    trace_on_signal(Arc::clone(&switch)).map_err(failed)?;
    let waker = driver.waker();
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signal(Arc::clone(&stop), driver.waker()).map_err(failed)?;
    let server_options = ServerOptions {
        waker: Some(Arc::new(move || waker.wake())),
        clock: Some(Arc::new(driver.clock())),
        limits: options.limits.clone(),
        tls: options.tls.as_ref().map(read_tls).transpose().map_err(|error| (BAD_INPUT, error))?,
    };
    let server = server::serve_with(Arc::clone(&switch), options.grpc, server_options).map_err(|error| {
        let hint = match error {
            ServeError::Bind { .. } => "; choose another address with: -- --grpc-server-addr HOST:PORT",
            _ => "",
        };
        failed(anyhow!("{error}{hint}"))
    })?;
    // Until this function ends.
    let _metrics = match options.arguments.metrics_addr {
        None => None,
        Some(addr) => {
            let counters = driver.counters();
            let served = metrics::serve(Arc::clone(&switch), Arc::new(move || counters.read()), addr)
                .with_context(|| {
                    format!("cannot serve metrics on {addr}; choose another with --metrics-addr")
                })
                .map_err(failed)?;
            eprintln!("metrics on http://{}/metrics", served.address());
            Some(served)
        }
    };
    eprintln!("listening for P4Runtime on {}", server.local_addr());

    let ended = driver.run(&stop);
    server.shutdown();
    let report = {
        let switch = switch.lock().unwrap_or_else(PoisonError::into_inner);
        report::Report::new(&switch, &driver)
    };
    eprint!("{report}");
    if let Some(path) = &options.arguments.stats_json {
        std::fs::write(path, report.to_json())
            .with_context(|| format!("cannot write '{}'", path.display()))
            .map_err(failed)?;
    }
    ended.map_err(|error| failed(anyhow!("{error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn read_tls(files: &TlsFiles) -> anyhow::Result<Tls> {
    let read =
        |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read '{}'", path.display()));
    Ok(Tls {
        certificate: read(&files.certificate)?,
        key: read(&files.key)?,
        client_ca: files.client_ca.as_ref().map(read).transpose()?,
    })
}

fn start_log(options: &Options) -> anyhow::Result<()> {
    let level: tracing::level_filters::LevelFilter = options.arguments.log_level.parse()?;
    let (writer, is_file) = match &options.arguments.log_file {
        None => (BoxMakeWriter::new(io::stderr), false),
        Some(path) => {
            let file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("cannot open log file '{}'", path.display()))?;
            let file = Mutex::new(file);
            let both = options.arguments.log_console;
            (if both { BoxMakeWriter::new(file.and(io::stderr)) } else { BoxMakeWriter::new(file) }, true)
        }
    };
    let colours = !is_file && io::IsTerminal::is_terminal(&io::stderr());
    // Cranelift tells each function that it compiles, instruction by instruction.
    let compiler = level.min(tracing::level_filters::LevelFilter::WARN);
    let compiler = ["cranelift_jit", "cranelift_codegen", "cranelift_frontend", "regalloc2"]
        .map(|name| format!(",{name}={compiler}"))
        .concat();
    let filter = tracing_subscriber::EnvFilter::new(format!("{level}{compiler}"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colours).init();
    Ok(())
}

/// Gives the trace to a file or stdout.
fn trace_to(driver: &mut Driver, options: &Options) -> anyhow::Result<()> {
    let format = options.trace_format;
    let mut to: Box<dyn io::Write + Send> = match &options.arguments.trace_file {
        None => Box::new(io::stdout()),
        Some(path) => {
            let file = std::fs::File::create(path);
            Box::new(file.with_context(|| format!("cannot write trace file '{}'", path.display()))?)
        }
    };
    driver.set_trace_sink(Box::new(move |records, lost| {
        let mut lines = Vec::new();
        let written = trimwire_switch::trace::write(&mut lines, format, records, lost);
        if let Err(error) = written.and_then(|()| to.write_all(&lines)).and_then(|()| to.flush()) {
            tracing::warn!("cannot write the trace: {error}");
        }
    }));
    Ok(())
}

/// Turns the trace on and off at every SIGUSR1.
fn trace_on_signal(switch: Arc<Mutex<Switch>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut toggle = {
        let _context = runtime.enter();
        signal(SignalKind::user_defined1())?
    };
    std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
        while runtime.block_on(toggle.recv()).is_some() {
            let mut switch = switch.lock().unwrap_or_else(PoisonError::into_inner);
            let on = !switch.tracing();
            switch.set_tracing(on);
            tracing::info!("trace {}", if on { "on" } else { "off" });
        }
    })?;
    Ok(())
}

/// Sets `stop` at the first SIGINT or SIGTERM.
fn stop_on_signal(stop: Arc<AtomicBool>, waker: Waker) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        stop.store(true, Ordering::Relaxed);
        waker.wake();
    })?;
    Ok(())
}
