//! Test only: an app whose processes have several threads, as a language with threads will have. The front takes it for
//! `baton-php`.
//!
//! Each thread tells who it is: `PID THREAD TAG`, with the `tag` of the query. Before, it sleeps for `ms` milliseconds, and
//! computes for `spin`.

#![forbid(unsafe_code)]

use std::io;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use baton_guest::process::{Process, Thread};
use baton_guest::request::{ReplyError, Request};
use baton_guest::zygote::Zygote;
use baton_handoff::request::Field;
use baton_handoff::ring::End;

fn main() {
    match run() {
        Ok(Some(process)) => serve(&process),
        // The zygote's work is over.
        Ok(None) => {}
        Err(error) => {
            eprintln!("baton-threaded: {error}");
            exit(1);
        }
    }
}

/// `Some` in each forked process.
fn run() -> io::Result<Option<Process>> {
    let zygote = Zygote::open()?;
    zygote.drop_privileges()?;
    // What tells that a request is over its deadline would end the process.
    let nobody_looks = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGPROF, nobody_looks)?;
    zygote.serve()
}

fn serve(process: &Process) {
    std::thread::scope(|scope| {
        for index in 0..process.thread_count() {
            scope.spawn(move || {
                let thread = process.attach(index);
                thread.iter().for_each(|thread| work(thread, index));
            });
        }
    });
}

fn work(thread: &Thread<'_>, index: u32) {
    while let Some(mut request) = thread.accept() {
        let ended = answer(&mut request, index);
        request.end(ended.map_or(End::Abandoned, |()| End::Finished));
    }
}

fn answer(request: &mut Request<'_>, index: u32) -> Result<(), ReplyError> {
    let query = String::from_utf8_lossy(request.head().field(Field::Query)).into_owned();
    let value = |name| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(key, value)| (key == name).then_some(value))
    };
    let lasts = |name| {
        let ms = value(name).and_then(|ms| ms.parse().ok());
        Duration::from_millis(ms.unwrap_or(0))
    };
    std::thread::sleep(lasts("ms"));
    let begun = Instant::now();
    while begun.elapsed() < lasts("spin") {}
    let tag = value("tag").unwrap_or_default();
    let text = format!("{} {index} {tag}", rustix::process::getpid());
    let headers = [(b"Content-Type".as_slice(), b"text/plain".as_slice())];
    request.start(200, headers.into_iter())?;
    request.write(text.as_bytes())
}
