//! What a hostile process does, each one thing of a list. Threads are started for what goes on beside the requests.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use baton_handoff::app::{ReplyWriter, Taken};
use baton_handoff::control::{self, Kind};
use baton_handoff::layout::RING_BYTES;
use baton_handoff::reply;
use baton_handoff::ring::End;
use rustix::fs::{FallocateFlags, SealFlags};
use rustix::mm::ProtFlags;
use rustix::process::Signal;

use crate::process::App;
use crate::random::Random;
use crate::raw::{
    self, COMPLETE, FINISHED, OFFERED, OPEN, Raw, SLOTS, TAKEN, UP_BYTES, WAKE, reply_word,
};
use crate::zygote::{exit_now, fork, send_raw};

/// One process in so many is honest while there is no peace.
const HONEST_ONE_IN: usize = 2;
/// A hostile process that is not killed ends after so long, so that others have their turn.
const LIFE_MS: usize = 800;

type Misdeed = fn(&'static App, Random);

const MISDEEDS: [(&str, Misdeed); 24] = [
    ("scribble", scribble),
    ("scribble_words", scribble_words),
    ("odd_heads", odd_heads),
    ("answer_before_taking", answer_before_taking),
    ("replay", replay),
    ("never_take", never_take),
    ("flood_control", flood_control),
    ("flood_descriptors", flood_descriptors),
    ("flood_restarts", flood_restarts),
    ("close_control", close_control),
    ("flood_stderr", flood_stderr),
    ("knock", knock),
    ("punch_holes", punch_holes),
    ("force_memory", force_memory),
    ("end_in_reply", end_in_reply),
    ("children", children),
    ("flood_interim", flood_interim),
    ("endless_body", endless_body),
    ("hang", hang),
    ("complete_and_die", complete_and_die),
    ("unsay", unsay),
    ("lingering_socket", lingering_socket),
    ("stop_itself", stop_itself),
    ("stay", stay),
];

/// The life of the app process of this number. Comes back if it was an honest one. Misdeeds are dealt in turn, so that a
/// slow machine, on which few processes live, sees as many kinds of them as there are hostile processes.
pub fn live(app: App, number: u64, mut random: Random) {
    let only = std::env::var("BATON_MISDEED").ok();
    let (name, misdeed) = match &only {
        Some(only) => match MISDEEDS.iter().find(|(name, _)| name == only) {
            Some(found) => *found,
            None => exit_now(9),
        },
        None => MISDEEDS[(number % MISDEEDS.len() as u64) as usize],
    };
    if random.one_in(HONEST_ONE_IN) {
        let requests = 20 + random.next() % 100;
        return app.serve_honestly(requests);
    }
    eprintln!("misdeed {name}");
    let app: &'static App = Box::leak(Box::new(app));
    let life_ms = 100 + random.below(LIFE_MS) as u64;
    let status = random.below(256) as i32;
    // Where `fork` wants a single thread the misdeed itself sees to its end.
    if !matches!(name, "children" | "lingering_socket" | "stay") {
        spawn(move || {
            sleep(Duration::from_millis(life_ms));
            exit_now(status)
        });
    }
    misdeed(app, random);
    exit_now(0)
}

// ---- replies that are well formed and say nothing ------------------------------------------------

fn reply_of(body: usize, announce: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = body.to_string();
    let headers = [("X-Guest", "hostile"), ("Content-Length", length.as_str())];
    let headers = headers[..1 + usize::from(announce)]
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let _ = reply::encode(&mut bytes, 200, headers);
    bytes.extend(b"HOSTILE ".iter().cycle().take(body));
    bytes
}

fn answer(app: &App, taken: Taken, body: usize) {
    let mut writer = ReplyWriter::new(taken);
    app.write(taken, &mut writer, &reply_of(body, false));
    writer.publish(&app.segment, End::Finished);
}

/// Answers as fits until the front says stop.
fn serve(app: &App, random: &mut Random) {
    while let Some(taken) = app.accept() {
        answer(app, taken, random.of(&[0, 10, 5000, 100_000, 700_000]));
    }
}

fn say(app: &App, slot: u32, generation: u32, end: u64, written: u64) {
    app.up
        .u64(raw::reply(slot))
        .store(reply_word(generation, end, written), Ordering::Release);
    knock_once(app, 1);
}

fn knock_once(app: &App, count: u64) {
    for knocker in &app.knockers {
        let _ = rustix::io::write(knocker, &count.to_ne_bytes());
    }
}

// ---- the memory --------------------------------------------------------------------------------

/// Random words all over, while requests run.
fn scribble(app: &'static App, mut random: Random) {
    let mut other = random.clone();
    spawn(move || {
        other.next();
        loop {
            for _ in 0..64 {
                app.up.scribble(&mut other);
            }
            knock_once(app, 1);
            sleep(Duration::from_micros(other.below(300) as u64));
        }
    });
    serve(app, &mut random);
}

/// Words of the protocol that could be true.
fn scribble_words(app: &'static App, mut random: Random) {
    app.up.fill_ring(&reply_of(3000, false));
    loop {
        let slot = random.below(SLOTS as usize) as u32;
        let generation = app.up.u32(raw::state(slot)).load(Ordering::Relaxed) >> 2;
        let of_generation = random.of(&[
            generation,
            generation,
            generation.wrapping_sub(1),
            generation + 0x1_0000,
        ]);
        match random.below(3) {
            0 => {
                let state = of_generation << 2 | random.below(4) as u32;
                app.up.u32(raw::state(slot)).store(state, Ordering::Release);
            }
            1 => {
                let ring = RING_BYTES as u64;
                let written = random.of(&[0, 1, 3, 8, 40, 2000, ring, ring + 1, 5 * ring, 1 << 43]);
                let end = random.of(&[OPEN, OPEN, FINISHED, 2, COMPLETE, 9]);
                say(app, slot, of_generation, end, written);
            }
            _ => {
                let wake = random.of(&[0, 1, 2, 77]);
                app.up.u32(WAKE).store(wake, Ordering::Relaxed);
            }
        }
        if random.one_in(8) {
            sleep(Duration::from_micros(random.below(400) as u64));
        }
    }
}

/// Heads whose lengths lie, and heads that are no HTTP.
fn odd_heads(app: &'static App, mut random: Random) {
    while let Some(taken) = app.accept() {
        let mut bytes = odd_head(&mut random);
        bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil\r\n0\r\n\r\n");
        if random.one_in(3) {
            bytes.extend(random.bytes(9000));
        }
        app.up.fill_ring(&bytes);
        let written = match random.below(4) {
            0 => random.below(bytes.len()) as u64,
            _ => bytes.len() as u64,
        };
        if random.one_in(2) {
            say(app, taken.slot, taken.generation.bits(), OPEN, written / 2);
            sleep(Duration::from_micros(random.below(2000) as u64));
        }
        let end = random.of(&[FINISHED, FINISHED, 2, COMPLETE]);
        say(app, taken.slot, taken.generation.bits(), end, written);
        if end == COMPLETE {
            say(app, taken.slot, taken.generation.bits(), FINISHED, written);
        }
    }
}

fn odd_head(random: &mut Random) -> Vec<u8> {
    const NAMES: [&str; 12] = [
        "X-A",
        "Content-Length",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Upgrade",
        "X\r\nY",
        "A b",
        "",
        "X:",
        "Trailer",
        "Date",
    ];
    const VALUES: [&str; 12] = [
        "v",
        "5",
        "7",
        "-1",
        "99999999999999999999",
        "chunked",
        "close, upgrade",
        "a\r\nX-Evil: 1",
        "a\r\n\r\nHTTP/1.1 200 OK",
        "a\0b",
        "\u{7f}\n",
        "3, 3",
    ];
    let status = random.of(&[
        0, 99, 100, 101, 103, 199, 200, 200, 200, 204, 205, 206, 304, 404, 600, 999, 1000, 65535,
    ]);
    let headers: Vec<_> = (0..random.below(8))
        .map(|_| (random.of(&NAMES), random.of(&VALUES)))
        .collect();
    let headers = headers
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let mut bytes = Vec::new();
    let _ = reply::encode(&mut bytes, status, headers);
    if random.one_in(2) {
        // One of: length in all, number of headers, length of a name, length of a value.
        let at = random.of(&[0, 6, 8, 10]);
        let any = random.next() as u32;
        let lie = random.of(&[0, 1, 7, 8, 0xffff, 0x7fff_ffff, u32::MAX, any]);
        let size = if at == 0 || at == 10 { 4 } else { 2 };
        if let Some(place) = bytes.get_mut(at..at + size) {
            place.copy_from_slice(&lie.to_ne_bytes()[..size]);
        }
    }
    bytes
}

/// Finished before it was taken.
fn answer_before_taking(app: &'static App, mut random: Random) {
    let bytes = reply_of(random.below(5000), false);
    app.up.fill_ring(&bytes);
    while !app.is_stopped() {
        let slot = random.below(SLOTS as usize) as u32;
        let state = app.up.u32(raw::state(slot)).load(Ordering::Acquire);
        if state & 3 == OFFERED {
            say(app, slot, state >> 2, FINISHED, bytes.len() as u64);
        }
        // Guesses at what comes next, too.
        if random.one_in(4) {
            say(app, slot, (state >> 2) + 1, FINISHED, bytes.len() as u64);
        }
        sleep(Duration::from_micros(200));
    }
}

/// Words of earlier and later requests, before and behind the true one.
fn replay(app: &'static App, mut random: Random) {
    while let Some(taken) = app.accept() {
        let generation = taken.generation.bits();
        for _ in 0..random.below(6) {
            let other = random.of(&[
                generation.wrapping_sub(1),
                generation + 1,
                generation ^ 0x8000,
                generation + 0x1_0000,
            ]);
            say(
                app,
                taken.slot,
                other,
                random.below(5) as u64,
                random.below(70_000) as u64,
            );
            app.up
                .u32(raw::state(taken.slot))
                .store(other << 2 | random.below(4) as u32, Ordering::Release);
        }
        answer(app, taken, random.below(3000));
        if random.one_in(2) {
            say(app, taken.slot, generation, OPEN, 12);
            app.up
                .u32(raw::state(taken.slot))
                .store(generation << 2 | OFFERED, Ordering::Release);
        }
    }
}

/// Looks as if it slept, and takes nothing.
fn never_take(app: &'static App, mut random: Random) {
    while !app.is_stopped() {
        app.up.u32(WAKE).store(1, Ordering::Relaxed);
        sleep(Duration::from_micros(random.below(3000) as u64));
    }
}

/// A reply begun, then unsaid: another generation, offered again, shorter, open after its end.
fn unsay(app: &'static App, mut random: Random) {
    while let Some(taken) = app.accept() {
        let generation = taken.generation.bits();
        let bytes = reply_of(200_000, random.one_in(2));
        app.up.fill_ring(&bytes);
        let all = bytes.len() as u64;
        say(
            app,
            taken.slot,
            generation,
            random.of(&[OPEN, FINISHED, COMPLETE]),
            all,
        );
        for _ in 0..random.below(12) {
            sleep(Duration::from_micros(random.below(1500) as u64));
            let other = random.of(&[generation, generation, generation.wrapping_sub(1)]);
            let state = random.of(&[OFFERED, TAKEN, 0]);
            app.up
                .u32(raw::state(taken.slot))
                .store(generation << 2 | state, Ordering::Release);
            let written = random.of(&[all, all / 2, 100_000, 60, 0]);
            say(
                app,
                taken.slot,
                other,
                random.of(&[OPEN, FINISHED, COMPLETE]),
                written,
            );
        }
    }
}

/// The pages vanish under the front's hands.
fn punch_holes(app: &'static App, mut random: Random) {
    let mut other = random.clone();
    spawn(move || {
        other.next();
        loop {
            let at = other.below(UP_BYTES / 4096) as u64 * 4096;
            let len = 4096 * (1 + other.below(64)) as u64;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&app.up_file, flags, at, len);
        }
    });
    serve(app, &mut random);
}

/// What the seals forbid. Says BREACH if it is not forbidden after all.
fn force_memory(app: &'static App, mut random: Random) {
    let must_fail = |what: &str, succeeded: bool| {
        if succeeded {
            eprintln!("BREACH: {what}");
        }
    };
    let files = [
        ("up", &app.up_file),
        ("down", &app.down_file),
        ("flags", &app.flags_file),
    ];
    for (name, file) in files {
        let shrink = rustix::fs::ftruncate(file, 4096 - 1).is_ok();
        must_fail(&format!("{name} shrinks"), shrink);
        let grow = rustix::fs::ftruncate(file, 1 << 30).is_ok();
        must_fail(&format!("{name} grows"), grow);
        let beyond = rustix::fs::fallocate(file, FallocateFlags::empty(), 1 << 30, 4096).is_ok();
        must_fail(&format!("{name} grows by fallocate"), beyond);
        let seal = rustix::fs::fcntl_add_seals(file, SealFlags::WRITE).is_ok();
        must_fail(&format!("{name} is sealed once more"), seal);
    }
    for (name, file) in &files[1..] {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let map = Raw::map(file.as_fd(), 4096, both).is_ok();
        must_fail(&format!("{name} is mapped for writing"), map);
        let made = Raw::map(file.as_fd(), 4096, ProtFlags::READ);
        let made = made.is_ok_and(|raw| raw.try_make_writable());
        must_fail(&format!("{name} is made writable"), made);
        must_fail(
            &format!("{name} is written to"),
            rustix::io::pwrite(file, b"x", 0).is_ok(),
        );
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let hole = rustix::fs::fallocate(file, flags, 0, 4096).is_ok();
        must_fail(&format!("{name} gets a hole"), hole);
    }
    serve(app, &mut random);
}

// ---- the control socket, standard error, the knockers ------------------------------------------------

fn flood_control(app: &'static App, mut random: Random) {
    let mut flood = random.clone();
    let _ = app.with_control(|control| {
        for _ in 0..50 + flood.below(200) {
            let _ = match flood.below(4) {
                0 => send_raw(control, b""),
                1 => send_raw(
                    control,
                    &vec![0; control::MESSAGE_BYTES_MAX + flood.below(9000)],
                ),
                2 => {
                    let kind = flood.of(&[Kind::Hello, Kind::Restart]);
                    let text = vec![b'\n'; flood.below(500)];
                    control::send(control, kind, (flood.next(), 0), &text, &[], false)
                }
                _ => send_raw(control, &[1; 4000][..flood.below(4000)]),
            };
        }
        Ok(())
    });
    serve(app, &mut random);
}

fn flood_descriptors(app: &'static App, mut random: Random) {
    let many = vec![app.up_file.as_fd(); control::DESCRIPTORS_MAX];
    let _ = app.with_control(|control| {
        for _ in 0..100 {
            let count = 1 + random.below(many.len());
            let kind = random.of(&[Kind::Hello, Kind::Body, Kind::Fork, Kind::Restart]);
            let _ = control::send(control, kind, (1, 1), b"", &many[..count], false);
        }
        Ok(())
    });
    serve(app, &mut random);
}

/// One wish for a restart after the other, as fast as it goes.
fn flood_restarts(app: &'static App, mut random: Random) {
    spawn(move || {
        loop {
            let _ = app.with_control(|control| {
                control::send(control, Kind::Restart, (0, 0), b"again", &[], false)
            });
        }
    });
    serve(app, &mut random);
}

/// A socket that is slow to close: whoever drops its last descriptor waits for data that nobody takes.
fn lingering_socket(app: &'static App, mut random: Random) {
    send_lingering_socket(app, random.of(&[Kind::Hello, Kind::Restart]));
    for _ in 0..random.below(20) {
        let Some(taken) = app.accept() else { return };
        answer(app, taken, 10);
    }
}

pub fn send_lingering_socket(app: &App, kind: Kind) {
    let linger = || -> std::io::Result<OwnedFd> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        // The child keeps the other end open, and has no copy of this one: the last is to be the front's.
        if fork()?.is_none() {
            app.sleep_while_front_lives(Duration::from_secs(60));
            drop(listener);
            exit_now(0);
        }
        drop(listener);
        let mut stream = TcpStream::connect(address)?;
        stream.set_nonblocking(true)?;
        while stream.write(&[0; 65536]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(60)))?;
        Ok(stream.into())
    };
    if let Ok(socket) = linger() {
        let _ = app.with_control(|control| {
            control::send(control, kind, (1, 1), b"", &[socket.as_fd()], false)
        });
    }
}

fn close_control(app: &'static App, mut random: Random) {
    if random.one_in(2) {
        let how = random.of(&[
            rustix::net::Shutdown::Read,
            rustix::net::Shutdown::Write,
            rustix::net::Shutdown::Both,
        ]);
        let _ = app.with_control(|control| Ok(rustix::net::shutdown(control, how)?));
    } else {
        app.close_control();
    }
    serve(app, &mut random);
}

fn flood_stderr(app: &'static App, mut random: Random) {
    let mut other = random.clone();
    spawn(move || {
        let _ = rustix::pipe::fcntl_setpipe_size(rustix::stdio::stderr(), 1 << 20);
        for _ in 0..2000 {
            let len = other.below(9000);
            let mut piece = match other.below(5) {
                0 => vec![0; len],
                1 => b"\n".repeat(len),
                2 => b"\x1b[2J\r\x07{\"a\":".repeat(len / 10),
                3 => vec![b'x'; len],
                _ => other.bytes(len),
            };
            if other.one_in(2) {
                piece.push(b'\n');
            }
            let _ = rustix::io::write(rustix::stdio::stderr(), &piece);
        }
    });
    serve(app, &mut random);
}

fn knock(app: &'static App, mut random: Random) {
    let mut other = random.clone();
    spawn(move || {
        loop {
            let count = other.of(&[1, 1, 1, 0xffff_ffff, u64::MAX - 1]);
            knock_once(app, count);
            if other.one_in(50) {
                // Room for more.
                for knocker in &app.knockers {
                    let _ = rustix::io::read(knocker, &mut [0; 8]);
                }
            }
        }
    });
    serve(app, &mut random);
}

// ---- ends --------------------------------------------------------------------------------------

fn end_in_reply(app: &'static App, mut random: Random) {
    for _ in 0..random.below(4) {
        let Some(taken) = app.accept() else { return };
        answer(app, taken, 100);
    }
    let Some(taken) = app.accept() else { return };
    let bytes = reply_of(20_000, random.one_in(2));
    let mut writer = ReplyWriter::new(taken);
    let len = random.of(&[0, 3, 20, 60, 10_000, bytes.len()]);
    app.write(taken, &mut writer, &bytes[..len]);
    writer.publish(
        &app.segment,
        random.of(&[End::Open, End::Open, End::Finished]),
    );
    sleep(Duration::from_micros(random.below(3000) as u64));
    kill_itself(random.of(&[Signal::SEGV, Signal::ABORT, Signal::KILL, Signal::STOP]));
}

fn stop_itself(app: &'static App, mut random: Random) {
    let me = rustix::process::getpid();
    spawn(move || {
        sleep(Duration::from_millis(random.below(300) as u64));
        let _ = rustix::process::kill_process(me, Signal::STOP);
    });
    serve(app, &mut Random::new(1, 1));
}

/// Works well, and does not hear that it is to end.
fn stay(app: &'static App, mut random: Random) {
    while !app.is_stopped() {
        let Some(taken) = app.segment.take(0, 0) else {
            sleep(Duration::from_micros(200));
            continue;
        };
        answer(app, taken, random.of(&[10, 5000]));
    }
    sleep(Duration::from_secs(60));
}

fn kill_itself(signal: Signal) {
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
}

/// Children that live on, scribble and knock when the process has ended.
fn children(app: &'static App, mut random: Random) {
    let Some(taken) = app.accept() else { return };
    let bytes = reply_of(230_000, false);
    let mut writer = ReplyWriter::new(taken);
    app.write(taken, &mut writer, &bytes);
    writer.publish(
        &app.segment,
        random.of(&[End::Finished, End::Complete, End::Open]),
    );
    for child in 0..2 {
        if let Ok(None) = fork() {
            let mut random = Random::new(random.next(), child);
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(2) {
                let end = random.below(4) as u64;
                let written = random.of(&[bytes.len(), bytes.len() / 2, 0]) as u64;
                say(app, taken.slot, taken.generation.bits(), end, written);
                app.up.scribble(&mut random);
                sleep(Duration::from_micros(random.below(500) as u64));
            }
            exit_now(0);
        }
    }
}

// ---- too much ----------------------------------------------------------------------------------

/// One informational head after the other.
fn flood_interim(app: &'static App, mut random: Random) {
    while let Some(taken) = app.accept() {
        let mut writer = ReplyWriter::new(taken);
        let mut head = Vec::new();
        let value = random.bytes(random.clone().below(300));
        let headers = [(b"X-Hint".as_slice(), value.as_slice())];
        let _ = reply::encode(&mut head, 103, headers.into_iter());
        let heads = head.repeat(50);
        for _ in 0..random.below(2000) {
            if app.segment.is_client_gone(taken) {
                break;
            }
            writer.copy_in(&app.segment, &heads);
            writer.publish(&app.segment, End::Open);
        }
        writer.publish(&app.segment, End::Finished);
    }
}

/// A body without end, with no regard to what was read.
fn endless_body(app: &'static App, mut random: Random) {
    while let Some(taken) = app.accept() {
        let bytes = reply_of(RING_BYTES, false);
        app.up.fill_ring(&bytes[..RING_BYTES]);
        let mut written = RING_BYTES as u64 / 2;
        while !app.segment.is_client_gone(taken) {
            say(app, taken.slot, taken.generation.bits(), OPEN, written);
            written += random.below(RING_BYTES / 4) as u64;
            app.up
                .u64(raw::ring(taken.slot) + random.below(1000) * 8)
                .store(random.next(), Ordering::Relaxed);
            sleep(Duration::from_micros(random.below(2000) as u64));
        }
        say(app, taken.slot, taken.generation.bits(), FINISHED, written);
    }
}

/// Begins, perhaps, and does not go on.
fn hang(app: &'static App, mut random: Random) {
    if let Some(taken) = app.accept() {
        let mut writer = ReplyWriter::new(taken);
        let bytes = reply_of(5000, false);
        app.write(taken, &mut writer, &bytes[..random.of(&[0, 5, 4000])]);
        writer.publish(&app.segment, End::Open);
    }
    loop {
        sleep(Duration::from_secs(60));
    }
}

/// A large reply is complete, the process ends while the client reads.
fn complete_and_die(app: &'static App, mut random: Random) {
    let Some(taken) = app.accept() else { return };
    let mut writer = ReplyWriter::new(taken);
    app.write(taken, &mut writer, &reply_of(250_000, false));
    writer.publish(&app.segment, End::Complete);
    sleep(Duration::from_millis(random.below(60) as u64));
}
