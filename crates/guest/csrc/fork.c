/*
 * fork.c - a fork whose child is nobody's: its parent has ended, so the nearest subreaper becomes its parent.
 *
 * The process in between is made by vfork: it borrows the caller's memory while the kernel holds the caller up, forks, and
 * ends. Of the page tables there is one copy, that of the new process, and it is what costs time.
 *
 * In C because vfork returns twice to one stack frame: C compilers know that of vfork, Rust knows it of nothing.
 */
#include <errno.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * 0 in the new process, with `*between` the parent that it begins with; in the caller the pid of the process in between, to be
 * waited for: it ends with status 0, or with the errno of its fork. -1 with errno if not even that one could be made.
 *
 * The caller has one thread. POSIX lets a child of vfork do nothing but exec and exit; Linux defines more (clone(2), CLONE_VM
 * and CLONE_VFORK), and that is relied on: the one thread goes on under another pid, on the same memory, thread control block
 * included, while its first self sleeps. To glibc's fork it is the same thread. Its handlers run once on each side, it writes
 * the new process's own id into the copy of the control block, and nothing here returns on the borrowed stack.
 */
pid_t baton_fork_orphan(pid_t *between)
{
    sigset_t all, before;
    pid_t pid;

    /* A handler would run on borrowed memory. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid = vfork();
    if (pid == 0) {
        *between = getpid();
        pid = fork();
        if (pid != 0) {
            _exit(pid < 0 ? errno : 0);
        }
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}
