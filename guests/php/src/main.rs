//! The app process for PHP. All of it is C, in `csrc`, since PHP's interface is made of C macros; this file starts it and
//! links the guest's side of the handoff, which the C code calls through `baton_guest.h`.
//!
//! There is no Rust `main`: what Rust's start-up does to signals (it catches SIGSEGV to tell a stack overflow) would
//! change what PHP and its extensions see.

#![no_main]

use std::ffi::{c_char, c_int};

use baton_guest as _; // for the symbols of its C interface

unsafe extern "C" {
    fn baton_php_main(argc: c_int, argv: *mut *mut c_char) -> c_int;
}

/// # Safety
/// Called once, by the C runtime, with what it gives to every `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(argc: c_int, argv: *mut *mut c_char) -> c_int {
    // SAFETY: handed on as they came, on the main thread.
    unsafe { baton_php_main(argc, argv) }
}
