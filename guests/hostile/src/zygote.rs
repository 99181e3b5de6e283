//! Forks on the front's command, sometimes with bad manners.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use baton_guest::settings::Settings;
use baton_handoff::control::{self, Kind, Message};
use rustix::process::{Pid, Signal};

use crate::misdeeds;
use crate::process::App;
use crate::random::Random;

pub fn run() -> io::Result<()> {
    // SAFETY: standard input is open, and stays so until it is replaced below.
    let inherited = unsafe { BorrowedFd::borrow_raw(0) };
    let control = rustix::io::fcntl_dupfd_cloexec(inherited, 3)?;
    rustix::stdio::dup2_stdin(&std::fs::File::open("/dev/null")?)?;
    let front = rustix::process::getppid();
    let settings = match control::receive(control.as_fd(), true)? {
        Some(message) if message.kind == Kind::Settings => Settings::new(message.text),
        _ => return Err(io::Error::other("no settings")),
    };
    drop_privileges(&settings)?;
    die_with(front)?;
    let seed = std::env::var("BATON_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let peace = PathBuf::from(settings.get_str("root").unwrap_or("/")).join("peace");
    say(&control, Kind::Ready, 0)?;
    loop {
        match control::receive(control.as_fd(), true)? {
            Some(message) if message.kind == Kind::Fork => {
                let mut random = Random::new(seed, message.a);
                let peaceful = peace.exists();
                if !peaceful && random.one_in(25) {
                    misbehave(&control, &mut random);
                }
                fork_twice(message, front, random, peaceful)?;
            }
            None => return Ok(()),
            Some(message) if message.kind == Kind::Stop => return Ok(()),
            Some(_) => {}
        }
    }
}

fn say(control: &OwnedFd, kind: Kind, number: u64) -> io::Result<()> {
    control::send(control.as_fd(), kind, (number, 0), b"hostile", &[], true)
}

/// What a zygote can say that is not true or not fit.
fn misbehave(control: &OwnedFd, random: &mut Random) {
    let _ = match random.below(5) {
        0 => say(control, Kind::Ready, 7),
        1 => say(control, Kind::ForkFailed, random.next()),
        2 => say(control, Kind::Hello, 1),
        // Longer than a message may be: it cannot be received at all.
        3 => send_raw(control, &vec![0xee; control::MESSAGE_BYTES_MAX + 5000]),
        _ => send_raw(control, b"\xff\xff garbage"),
    };
}

pub fn send_raw(socket: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
    rustix::net::send(socket, bytes, flags)?;
    Ok(())
}

fn fork_twice(
    message: Message,
    front: Option<Pid>,
    random: Random,
    peaceful: bool,
) -> io::Result<()> {
    let Some(between) = fork()? else {
        match fork() {
            Ok(None) => become_process(message, front, random, peaceful),
            _ => exit_now(0),
        }
    };
    drop(message);
    let wait = || rustix::process::waitpid(Some(between), rustix::process::WaitOptions::empty());
    rustix::io::retry_on_intr(wait)?;
    Ok(())
}

fn become_process(message: Message, front: Option<Pid>, mut random: Random, peaceful: bool) -> ! {
    for _ in 0..20_000 {
        if rustix::process::getppid() == front {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let Ok(()) = die_with(front) else { exit_now(1) };
    let number = message.a;
    let Ok(app) = App::new(message, front) else {
        exit_now(1)
    };
    if !peaceful && random.one_in(30) {
        bad_birth(&app, number, &mut random);
    }
    if !peaceful && random.one_in(10) {
        slow_birth(&app, number, &mut random);
    } else {
        let _ = app.hello(number);
    }
    match peaceful {
        true => app.serve_honestly(u64::MAX),
        false => misdeeds::live(app, number, random),
    }
    exit_now(0)
}

/// Says no hello, a wrong one, or somebody else's.
fn bad_birth(app: &App, number: u64, random: &mut Random) {
    match random.below(4) {
        0 => exit_now(3),
        1 => {
            let _ = app.with_control(|control| send_raw(control, b"no hello"));
            std::thread::sleep(Duration::from_millis(500));
            exit_now(4)
        }
        2 => {
            // The hello comes from a child, which is not the front's to reap while its parent lives.
            if let Ok(None) = fork() {
                let _ = app.hello(number);
                exit_now(5)
            }
            app.sleep_while_front_lives(Duration::from_secs(30));
            exit_now(6)
        }
        _ => {
            let _ = app.hello(number);
        }
    }
}

/// Says that it boots first, and then what it likes, or nothing.
fn slow_birth(app: &App, number: u64, random: &mut Random) {
    let _ = app.say(Kind::Hello, (number, control::BOOTS_FIRST));
    let bare = |kind| {
        let _ = app.say(kind, (0, 0));
    };
    match random.below(8) {
        0 => exit_now(7),
        1 => {
            std::thread::sleep(Duration::from_millis(random.below(1000) as u64));
            exit_now(8)
        }
        2 => bare(Kind::Restart),
        3 => {
            let _ = app.with_control(|control| send_raw(control, b""));
        }
        4 => misdeeds::send_lingering_socket(app, Kind::Ready),
        5 => {
            bare(Kind::Ready);
            misdeeds::send_lingering_socket(app, Kind::Restart);
        }
        6 => {
            bare(Kind::Ready);
            for _ in 0..random.below(50) {
                bare(Kind::Restart);
            }
        }
        _ => bare(Kind::Ready),
    }
}

fn drop_privileges(settings: &Settings) -> io::Result<()> {
    let number = |name| settings.get_str(name)?.parse::<u32>().ok();
    if let (Some(uid), Some(gid)) = (number("uid"), number("gid")) {
        // SAFETY: plain numbers, and an empty list.
        let failed = unsafe {
            libc::setgroups(0, std::ptr::null())
                | libc::setresgid(gid, gid, gid)
                | libc::setresuid(uid, uid, uid)
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A test must not leave anything behind that outlives the front.
fn die_with(front: Option<Pid>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != front {
        exit_now(1);
    }
    Ok(())
}

/// `None` in the child.
pub fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: called while the process has one thread, so that no lock is held by one that is not there.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

pub fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process; nothing of it runs on.
    unsafe { libc::_exit(status) }
}
