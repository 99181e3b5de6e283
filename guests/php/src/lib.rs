//! The app process for PHP: a library that takes over the distribution's PHP program before its `main`.
//!
//! All of it is C, in `csrc`, since PHP's interface is made of C macros; this file starts it and links the guest's side of the
//! handoff, which the C code calls through `baton_guest.h`. PHP's functions are those of the program, which exports them for
//! its extensions. In its library, libphp, they call each other through a table, which makes it slower by a few percent
//! (see `ARCHITECTURE.md`).
//!
//! There is no Rust `main` in between: what Rust's start-up does to signals (it catches SIGSEGV to tell a stack overflow)
//! would change what PHP and its extensions see.

use std::ffi::{c_char, c_int, c_void};

use baton_guest as _; // for the symbols of its C interface

type Main = unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int;
type StartMain = unsafe extern "C" fn(
    Main,
    c_int,
    *mut *mut c_char,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

unsafe extern "C" {
    fn baton_php_main(argc: c_int, argv: *mut *mut c_char) -> c_int;
}

/// In place of glibc's, which it calls with another `main` than the program's.
///
/// # Safety
/// Called once, by the program's entry point, with what is meant for glibc (Linux Standard Base, `__libc_start_main`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_start_main(
    _main: Main,
    argc: c_int,
    argv: *mut *mut c_char,
    init: *mut c_void,
    fini: *mut c_void,
    rtld_fini: *mut c_void,
    stack_end: *mut c_void,
) -> c_int {
    // SAFETY: a name that ends in NUL; the handle asks for the next library that has it.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"__libc_start_main".as_ptr()) };
    if next.is_null() {
        // Not glibc: nothing has started that could tell more.
        std::process::abort();
    }
    // SAFETY: glibc's function of this name has this type.
    let next = unsafe { std::mem::transmute::<*mut c_void, StartMain>(next) };
    // SAFETY: handed on as they came, but for `main`.
    unsafe { next(baton_php_main, argc, argv, init, fini, rtld_fini, stack_end) }
}
