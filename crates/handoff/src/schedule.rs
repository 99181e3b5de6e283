//! How the two sides share a CPU (sched(7), sched_setattr(2)).
//!
//! I/O threads and app threads hand work to each other all the time, often on the same CPU. Two
//! things make that smoother, and need no privilege; the third does:
//!
//! - Short time slices. The kernel serves the earlier deadline first, and a short slice is an early
//!   deadline: who was just handed something gets its turn soon, behind a neighbour that computes
//!   for long. Both sides have the same slice, so that neither starves the other.
//! - App threads are batch threads: one that is woken does not take the CPU from the I/O thread
//!   that woke it, which has others to wake.
//! - I/O threads go before app threads: while one waits for its turn behind several of them, all clients wait.
//!
//! Measured at 50 connections, 8 PHP processes, two cores: 16 % more requests, P99 a quarter lower.
//! Slices of 300 us and more for app threads gave that back. Kernels before 6.12 ignore the slice.
//! With I/O threads 10 steps nicer to themselves P99 at 500 connections was 1.5 times lower (1.3 to 1.9, 15 rounds), with 5 steps
//! 1.3 times; at 4 connections 5 steps gave 1.15x req/s, 10 nothing.

/// The shortest that the kernel allows.
const SLICE_NS: u64 = 100_000;

/// How many steps of niceness an I/O thread is before what is as nice as the server was started.
const IO_STEPS: i32 = 7;

/// For the calling thread, which does I/O.
pub fn io_thread() {
    let nice = nice();
    // Takes root, CAP_SYS_NICE or RLIMIT_NICE.
    if !set(libc::SCHED_OTHER, 0, (nice - IO_STEPS).max(-20)) {
        set(libc::SCHED_OTHER, 0, nice);
    }
}

/// For the calling thread, which runs application code. What it forks is ordinary again.
pub fn app_thread() {
    set(
        libc::SCHED_BATCH,
        libc::SCHED_FLAG_RESET_ON_FORK as u64,
        nice(),
    );
}

/// How nice the calling thread is to others now: -20 to 19, the nicest.
fn nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// Whether it is allowed.
fn set(policy: i32, flags: u64, nice: i32) -> bool {
    // SAFETY: a block of zeros is a valid one.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = policy as u32;
    attributes.sched_flags = flags;
    attributes.sched_nice = nice;
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: a valid block with its size, for the calling thread. Where it is not allowed nothing
    // is lost but speed.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_policy_takes_effect() {
        std::thread::spawn(|| {
            super::app_thread();
            // SAFETY: asks about the calling thread.
            let policy = unsafe { libc::sched_getscheduler(0) };
            assert_eq!(policy, libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn io_threads_go_before_others_where_that_is_allowed() {
        let nice_of = |set: fn()| {
            let thread = std::thread::spawn(move || {
                set();
                super::nice()
            });
            thread.join().expect("no panic")
        };
        let (io, app) = (nice_of(super::io_thread), nice_of(super::app_thread));
        assert_eq!(app, super::nice(), "as the server was started");
        // Not even root may in every container.
        assert!(io == app - super::IO_STEPS || io == app, "{io}, {app}");
    }
}
