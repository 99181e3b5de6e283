/*
 * timeouts.c - signals of the zygote and of the app processes.
 *
 * Two things raise SIGPROF: PHP's own CPU timer (max_execution_time; in workers also clocks.c), and the front when a request is overdue.
 * Both end in zend_timeout_handler, so that an overdue script ends as PHP ends one: an error, then its shutdown functions. The handler is
 * installed without SA_RESTART, so a sleeping system call returns with EINTR.
 */
#include "baton_php.h"

#include <signal.h>
#include <sys/time.h>

#include "zend_signal.h"

static void (*php_on_timeout_hook)(int seconds);
static volatile sig_atomic_t timeout_fired;

/* A handler rather than SIG_IGN: programs that scripts start must not inherit an ignored SIGTERM. */
static void ignore_signal(int signo)
{
    (void)signo;
}

static void on_timeout(int seconds)
{
    timeout_fired = 1;
    php_on_timeout_hook(seconds);
}

/* Before zend_signal_startup(), which remembers these dispositions as the ones that each request begins with. */
void baton_php_signals_before_start(void)
{
    /* The front ends its app processes by itself. A signal meant for it that reaches the whole group or unit (Ctrl-C, a stop by
     * systemd, a log rotation) must not cost running requests. */
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    struct sigaction action = {0};

    action.sa_handler = ignore_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++) {
        sigaction(ignored[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN); /* as PHP's other servers do: a write to a closed socket is an error, not a death */
    signal(SIGPROF, SIG_IGN); /* harmless before the first request */
}

void baton_php_signals_after_start(void)
{
    /* Without this, PHP asks the kernel about seven signals at the start of every request. SIGPROF is still set for each. */
    SIGG(reset) = 0;
    php_on_timeout_hook = zend_on_timeout;
    zend_on_timeout = on_timeout;
}

/* Between two requests: SIGPROF does nothing, and no timer runs on into the next request. */
void baton_php_timeouts_idle(bool timer_runs)
{
    SIGG(handlers)[SIGPROF - 1].flags = 0;
    SIGG(handlers)[SIGPROF - 1].handler = (void *)SIG_IGN;
    if (timeout_fired || timer_runs) {
        /* The timeout armed PHP's hard_timeout timer. PHP disarms it only where max_execution_time is set. */
        static const struct itimerval never;
        timeout_fired = 0;
        setitimer(ITIMER_PROF, &never, NULL);
        zend_atomic_bool_store_ex(&EG(timed_out), false);
    }
}
