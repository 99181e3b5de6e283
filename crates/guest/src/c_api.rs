//! `include/baton_guest.h`: the same as the rest of this crate, for C.
//!
//! What each function does is documented there. Here: how the pointers are kept sound. A process
//! has one zygote and becomes at most one app process; both live until it ends, so threads and
//! requests may refer to them for ever. Threads and requests are boxes whose owner is the C side:
//! it passes each pointer back on the operating-system thread that got it, and not again after
//! `finish` or `abandon`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use baton_handoff::ring::End;

use crate::process::{Accepted, Process, Thread};
use crate::request::{ReplyError, Request};
use crate::zygote::Zygote;

static ZYGOTE: OnceLock<Option<Zygote>> = OnceLock::new();
static PROCESS: OnceLock<Process> = OnceLock::new();

#[repr(C)]
pub struct Str {
    ptr: *const c_char,
    len: usize,
}

#[repr(C)]
pub struct Header {
    name: Str,
    value: Str,
}

impl Str {
    fn new(bytes: &[u8]) -> Self {
        match bytes {
            // Something NUL-terminated to point at.
            [] => Self {
                ptr: c"".as_ptr(),
                len: 0,
            },
            _ => Self {
                ptr: bytes.as_ptr().cast(),
                len: bytes.len(),
            },
        }
    }

    /// # Safety
    /// `ptr` is valid for `len` bytes for as long as the result is used.
    unsafe fn bytes<'a>(&self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { slice(self.ptr.cast(), self.len) }
    }
}

/// # Safety
/// `ptr` is valid for `len` items for as long as the result is used; it may be NULL if `len` is 0.
unsafe fn slice<'a, T>(ptr: *const T, len: usize) -> &'a [T] {
    if len == 0 || ptr.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}

fn zygote() -> Option<&'static Zygote> {
    let open = || match Zygote::open() {
        Ok(zygote) => Some(zygote),
        Err(error) => {
            eprintln!("baton: {error}");
            None
        }
    };
    ZYGOTE.get_or_init(open).as_ref()
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn outcome(result: Result<(), ReplyError>) -> c_int {
    result.map_or_else(|error| fail(errno_of(error)), |()| 0)
}

fn errno_of(error: ReplyError) -> c_int {
    match error {
        ReplyError::Invalid => libc::EINVAL,
        ReplyError::TooLarge => libc::EMSGSIZE,
        ReplyError::ClientGone => libc::EPIPE,
    }
}

/// # Safety
/// `name` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_setting(name: *const c_char) -> *const c_char {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let value = name
        .to_str()
        .ok()
        .and_then(|name| zygote()?.settings().get(name));
    value.map_or(std::ptr::null(), CStr::as_ptr)
}

/// # Safety
/// `reason` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_zygote_failed(reason: *const c_char) {
    if let Some(zygote) = zygote() {
        // SAFETY: the caller's promise.
        zygote.report_failure(unsafe { CStr::from_ptr(reason) }.to_bytes());
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn baton_zygote_drop_privileges() -> c_int {
    let Some(zygote) = zygote() else {
        return fail(libc::ENOTCONN);
    };
    match zygote.drop_privileges() {
        Ok(()) => 0,
        Err(error) => fail(error.raw_os_error().unwrap_or(libc::EPERM)),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn baton_zygote_serve() -> c_int {
    let Some(zygote) = zygote() else {
        return fail(libc::ENOTCONN);
    };
    match zygote.serve() {
        Ok(Some(process)) => {
            // A process is forked once only.
            let _ = PROCESS.set(process);
            0
        }
        Ok(None) => -1,
        Err(error) => fail(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn baton_thread_count() -> u32 {
    PROCESS.get().map_or(0, Process::thread_count)
}

#[unsafe(no_mangle)]
pub extern "C" fn baton_thread_attach(index: u32) -> *mut Thread<'static> {
    let thread = PROCESS.get().and_then(|process| process.attach(index));
    thread.map_or(std::ptr::null_mut(), |thread| {
        Box::into_raw(Box::new(thread))
    })
}

/// # Safety
/// `thread` came from `baton_thread_attach` on this operating-system thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_accept(thread: *mut Thread<'static>) -> *mut Request<'static> {
    // SAFETY: the caller's promise.
    let thread = unsafe { &*thread };
    thread.accept().map_or(std::ptr::null_mut(), |request| {
        Box::into_raw(Box::new(request))
    })
}

/// # Safety
/// `thread` as for `baton_accept`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_thread_stopping(thread: *mut Thread<'static>) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { &*thread }.is_stopping())
}

/// # Safety
/// `thread` as for `baton_accept`; `stopped` points at an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_try_accept(
    thread: *mut Thread<'static>,
    stopped: *mut c_int,
) -> *mut Request<'static> {
    // SAFETY: the caller's promise.
    let accepted = unsafe { &*thread }.try_accept();
    // SAFETY: the caller's promise.
    unsafe { *stopped = c_int::from(matches!(accepted, Accepted::Stopped)) };
    match accepted {
        Accepted::Request(request) => Box::into_raw(Box::new(request)),
        Accepted::Nothing | Accepted::Stopped => std::ptr::null_mut(),
    }
}

/// # Safety
/// `thread` as for `baton_accept`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_thread_fd(thread: *mut Thread<'static>) -> c_int {
    use std::os::fd::AsRawFd;
    // SAFETY: the caller's promise.
    let doorbell = unsafe { &*thread }.process().segment().doorbell();
    doorbell.map_or_else(|| fail(libc::ENOTSUP), |fd| fd.as_raw_fd())
}

/// # Safety
/// `thread` as for `baton_accept`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_thread_arm(thread: *mut Thread<'static>) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { &*thread }.arm())
}

/// # Safety
/// `thread` as for `baton_accept`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_thread_disarm(thread: *mut Thread<'static>) {
    // SAFETY: the caller's promise.
    unsafe { &*thread }.disarm();
}

/// # Safety
/// `reason` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_request_restart(reason: *const c_char, whole_app: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let reason = unsafe { CStr::from_ptr(reason) }.to_bytes();
    let process = PROCESS.get();
    match process.map(|process| process.request_restart(reason, whole_app != 0)) {
        Some(Ok(())) => 0,
        Some(Err(error)) => fail(error.raw_os_error().unwrap_or(libc::ENOTCONN)),
        None => fail(libc::ENOTCONN),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn baton_disown() {
    if let Some(process) = PROCESS.get() {
        process.disown();
    }
}

/// # Safety
/// `request` came from an accept on this thread and is neither finished nor abandoned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_request_field(
    request: *const Request<'static>,
    field: c_int,
) -> Str {
    // SAFETY: the caller's promise.
    let request = unsafe { &*request };
    Str::new(
        request
            .head()
            .field_at(usize::try_from(field).unwrap_or(usize::MAX)),
    )
}

/// # Safety
/// `request` as for `baton_request_field`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_request_received_ns(request: *const Request<'static>) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { &*request }.head().received_ns()
}

/// # Safety
/// `request` as for `baton_request_field`; `header` points at a `baton_header`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_request_header(
    request: *const Request<'static>,
    index: u32,
    header: *mut Header,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some((name, value)) = unsafe { &*request }.head().header(index) else {
        return 0;
    };
    // SAFETY: the caller's promise.
    unsafe {
        *header = Header {
            name: Str::new(name),
            value: Str::new(value),
        }
    };
    1
}

/// # Safety
/// `request` as for `baton_request_field`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_request_header_count(request: *const Request<'static>) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { &*request }.head().header_count()
}

/// # Safety
/// `request` as for `baton_request_field`; `name` is NUL-terminated; `value` points at a
/// `baton_str`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_request_find_header(
    request: *const Request<'static>,
    name: *const c_char,
    value: *mut Str,
) -> c_int {
    // SAFETY: the caller's promise.
    let (head, wanted) = unsafe { ((*request).head(), CStr::from_ptr(name).to_bytes()) };
    let mut headers = (0..head.header_count()).filter_map(|index| head.header(index));
    let Some((_, found)) = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted)) else {
        return 0;
    };
    // SAFETY: the caller's promise.
    unsafe { *value = Str::new(found) };
    1
}

/// # Safety
/// `request` as for `baton_request_field`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_body_length(request: *const Request<'static>) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*request }.body_length()
}

/// # Safety
/// `request` as for `baton_request_field`; `buffer` may be written for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_body_read(
    request: *mut Request<'static>,
    buffer: *mut c_void,
    len: usize,
) -> isize {
    // SAFETY: the caller's promise.
    let (request, buffer) = unsafe { (&mut *request, buffer_of(buffer, len)) };
    count_or_errno(request.read_body(buffer))
}

/// # Safety
/// As for `baton_body_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_body_read_at(
    request: *mut Request<'static>,
    buffer: *mut c_void,
    len: usize,
    offset: u64,
) -> isize {
    // SAFETY: the caller's promise.
    let (request, buffer) = unsafe { (&mut *request, buffer_of(buffer, len)) };
    count_or_errno(request.read_body_at(buffer, offset))
}

/// # Safety
/// `buffer` may be written for `len` bytes while the result is used; NULL if `len` is 0.
unsafe fn buffer_of<'a>(buffer: *mut c_void, len: usize) -> &'a mut [u8] {
    if len == 0 || buffer.is_null() {
        return &mut [];
    }
    // SAFETY: the caller's promise. Bytes that were never written are valid as `u8` for the
    // copies and system calls that follow, which only write.
    unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) }
}

fn count_or_errno(read: std::io::Result<usize>) -> isize {
    match read {
        Ok(count) => count as isize,
        Err(error) => fail(error.raw_os_error().unwrap_or(libc::EIO)) as isize,
    }
}

/// # Safety
/// `request` as for `baton_request_field`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_client_gone(request: *const Request<'static>) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { &*request }.is_client_gone())
}

/// # Safety
/// `headers` is valid for `count` items, with their strings.
unsafe fn headers_of<'a>(
    headers: *const Header,
    count: u32,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    // SAFETY: the caller's promise.
    let headers: &'a [Header] = unsafe { slice(headers, count as usize) };
    // SAFETY: the caller's promise.
    headers
        .iter()
        .map(|header| unsafe { (header.name.bytes(), header.value.bytes()) })
}

/// # Safety
/// `request` as for `baton_request_field`; `headers` is valid for `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_reply_inform(
    request: *mut Request<'static>,
    status: u16,
    headers: *const Header,
    count: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    outcome(unsafe { (*request).inform(status, headers_of(headers, count)) })
}

/// # Safety
/// As for `baton_reply_inform`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_reply_start(
    request: *mut Request<'static>,
    status: u16,
    headers: *const Header,
    count: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    outcome(unsafe { (*request).start(status, headers_of(headers, count)) })
}

/// # Safety
/// `request` as for `baton_request_field`; `bytes` may be read for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_reply_write(
    request: *mut Request<'static>,
    bytes: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    outcome(unsafe { (*request).write(slice(bytes.cast(), len)) })
}

/// # Safety
/// As for `baton_reply_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_reply_try_write(
    request: *mut Request<'static>,
    bytes: *const c_void,
    len: usize,
) -> isize {
    // SAFETY: the caller's promise.
    match unsafe { (*request).try_write(slice(bytes.cast(), len)) } {
        Ok(count) => count as isize,
        Err(error) => fail(errno_of(error)) as isize,
    }
}

/// # Safety
/// `request` as for `baton_request_field`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_reply_flush(request: *mut Request<'static>) -> c_int {
    // SAFETY: the caller's promise.
    outcome(unsafe { (*request).flush() })
}

/// # Safety
/// `request` as for `baton_request_field`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_reply_complete(request: *mut Request<'static>) {
    // SAFETY: the caller's promise.
    unsafe { &mut *request }.complete();
}

/// # Safety
/// `request` as for `baton_request_field`; it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_reply_finish(request: *mut Request<'static>) {
    // SAFETY: the caller's promise: the box is given back once.
    unsafe { Box::from_raw(request) }.end(End::Finished);
}

/// # Safety
/// As for `baton_reply_finish`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_reply_abandon(request: *mut Request<'static>) {
    // SAFETY: the caller's promise: the box is given back once.
    unsafe { Box::from_raw(request) }.end(End::Abandoned);
}
