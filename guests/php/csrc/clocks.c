/*
 * clocks.c - how long a worker may take: to boot, and for each request (max_execution_time).
 *
 * PHP counts CPU time with a timer that is set and taken away for each request: two system calls. Here one timer runs on through many
 * requests. It ticks after a sixteenth of the limit; a request that sees a first tick is watched from then on, and is over its limit
 * when it has used that much CPU time since. So it is never cut short, and gets at most a sixteenth more. A request without
 * a tick makes no system call.
 *
 * The tick has a signal of its own, which restarts system calls. That time is up is said by SIGPROF, as by PHP's own timer and by the
 * front (timeouts.c). PHP's timer runs while the script boots, and once a script has called set_time_limit() in a request.
 */
#include "baton_php.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "zend_signal.h"

enum { BOOT_S_MAX = 60, BOOT_GRACE_S = 5, TICKS_PER_LIMIT = 16 };

#define NS_PER_S INT64_C(1000000000)
#define TICK_SIGNAL SIGRTMAX

/* Shared with the signal handler, which runs on the same thread. */
static volatile sig_atomic_t counting; /* a request runs, under the limit of all */
static volatile sig_atomic_t ticking;  /* the timer is set */
static volatile sig_atomic_t watched;  /* the request has seen a tick */
static volatile int64_t watched_since_ns;

static timer_t ticks, boot;
static bool have_ticks, have_boot;
static bool php_timer_runs;
static time_t boot_ends;
static zend_signal_entry_t time_is_up; /* PHP's handler of SIGPROF */
static ZEND_INI_MH((*php_on_modify));

static int64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static time_t monotonic_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void set_timer(timer_t timer, int64_t after_ns, int64_t then_every_ns)
{
    struct itimerspec times = {
        .it_value = {after_ns / NS_PER_S, after_ns % NS_PER_S},
        .it_interval = {then_every_ns / NS_PER_S, then_every_ns % NS_PER_S},
    };

    timer_settime(timer, 0, &times, NULL);
}

/* ---- requests --------------------------------------------------------- */

static int64_t limit_ns(void)
{
    return EG(timeout_seconds) > 0 ? EG(timeout_seconds) * NS_PER_S : 0;
}

static void tick_after(int64_t ns)
{
    ticking = 1;
    set_timer(ticks, ns, 0);
}

static void on_tick(int signo)
{
    int64_t limit = limit_ns(), used, tick = limit / TICKS_PER_LIMIT;
    int saved_errno = errno;

    (void)signo;
    ticking = 0;
    if (counting && limit > 0) {
        if (!watched) {
            watched = 1;
            watched_since_ns = cpu_ns();
        }
        used = cpu_ns() - watched_since_ns;
        if (used >= limit) {
            kill(getpid(), SIGPROF);
        } else {
            tick_after(MIN(tick, limit - used));
        }
    }
    errno = saved_errno;
}

static ZEND_INI_MH(on_set_time_limit)
{
    int result = php_on_modify(entry, new_value, mh_arg1, mh_arg2, mh_arg3, stage);

    if (stage == PHP_INI_STAGE_RUNTIME) {
        /* PHP has started its own timer, and counts from now on. */
        php_timer_runs = true;
        counting = 0;
    }
    return result;
}

/* Once in each process: timers do not survive a fork. Where the kernel has none left, the front's deadline is what remains. */
void baton_php_clocks_prepare(void)
{
    zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), "max_execution_time", sizeof("max_execution_time") - 1);
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct sigevent tick = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = TICK_SIGNAL};
    struct sigevent end_of_boot = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};

    sigemptyset(&action.sa_mask);
    have_ticks = sigaction(TICK_SIGNAL, &action, NULL) == 0 && timer_create(CLOCK_PROCESS_CPUTIME_ID, &tick, &ticks) == 0;
    have_boot = timer_create(CLOCK_MONOTONIC, &end_of_boot, &boot) == 0;
    php_on_modify = entry->on_modify;
    entry->on_modify = on_set_time_limit;
}

void baton_php_request_clock_start(void)
{
    watched = 0;
    counting = have_ticks;
    if (counting && !ticking && limit_ns() > 0) {
        tick_after(limit_ns() / TICKS_PER_LIMIT);
    }
    SIGG(handlers)[SIGPROF - 1] = time_is_up;
}

/* The thread waits: SIGPROF does nothing, and no timer that was meant for one request runs on into the next. */
void baton_php_request_clock_stop(void)
{
    counting = 0;
    baton_php_timeouts_idle(php_timer_runs);
    php_timer_runs = false;
}

/* ---- the boot --------------------------------------------------------- */

/* PHP's own timer counts CPU time and runs already. A boot that waits for something is ended as well: by SIGPROF, and if that does not
 * help, PHP ends the process at the second one. */
void baton_php_boot_clock_start(void)
{
    php_timer_runs = true;
    time_is_up = SIGG(handlers)[SIGPROF - 1];
    boot_ends = monotonic_s() + BOOT_S_MAX;
    if (have_boot) {
        set_timer(boot, BOOT_S_MAX * NS_PER_S, BOOT_GRACE_S * NS_PER_S);
    }
}

void baton_php_boot_clock_stop(void)
{
    if (have_boot) {
        set_timer(boot, 0, 0);
    }
}

bool baton_php_boot_clock_has_run_out(void)
{
    return monotonic_s() >= boot_ends;
}
