//! The app process for PHP. All of it is C, in `csrc`, since PHP's interface is made of C macros; this file hands over the
//! arguments and links the guest's side of the handoff, which the C code calls through `baton_guest.h`.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::process::exit;
use std::ptr;

use baton_guest as _; // for the symbols of its C interface

unsafe extern "C" {
    fn baton_php_main(argc: c_int, argv: *mut *mut c_char) -> c_int;
}

fn main() {
    // An argument of a process holds no NUL byte, so none is lost here.
    let arguments: Vec<CString> = std::env::args_os()
        .filter_map(|a| CString::new(a.into_vec()).ok())
        .collect();
    let mut argv: Vec<*mut c_char> = arguments
        .iter()
        .map(|a| a.as_ptr().cast_mut())
        .chain([ptr::null_mut()])
        .collect();
    let argc = c_int::try_from(arguments.len()).unwrap_or(c_int::MAX);
    // SAFETY: argv is NULL-terminated, and it and its strings outlive the call. PHP wants the main thread and gets it; no other
    // thread runs.
    exit(unsafe { baton_php_main(argc, argv.as_mut_ptr()) })
}
