//! How the process begins.
//!
//! What ships is freestanding: it brings its own `_start`, panic handler and memory functions, so that no C
//! library is linked and the binary stays tiny. Every other build, and so the test suite, starts through the
//! C library's `main`; from [`buildkite_shim::run`] on both run the same code.
#![allow(unsafe_code, reason = "entry point and memory functions are called by the kernel and the compiler")]

use buildkite_shim::run;
use buildkite_shim::sys::{self, Process};

#[cfg(not(freestanding))]
#[unsafe(no_mangle)]
extern "C" fn main(_: i32, argv: *const *const libc::c_char, envp: *const *const libc::c_char) -> ! {
    // SAFETY: the C library passes the kernel's NULL-ended vectors.
    let process = unsafe { Process::new(argv, envp) };
    sys::exit(run(&process))
}

#[cfg(freestanding)]
mod freestanding {
    use super::{Process, run, sys};
    use core::arch::naked_asm;
    use core::panic::PanicInfo;
    use core::ptr;

    #[cfg(panic = "unwind")]
    compile_error!("the freestanding shim cannot unwind: build it with `--profile shim`");

    /// Hands the stack as the kernel left it to [`begin`], with the alignment that the ABI asks for.
    #[cfg(target_arch = "x86_64")]
    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    extern "C" fn _start() -> ! {
        naked_asm!("xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {begin}", "ud2", begin = sym begin)
    }

    /// Hands the stack as the kernel left it to [`begin`]; the kernel aligns it on this architecture.
    #[cfg(target_arch = "aarch64")]
    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    extern "C" fn _start() -> ! {
        naked_asm!("mov x29, xzr", "mov x30, xzr", "mov x0, sp", "b {begin}", begin = sym begin)
    }

    extern "C" fn begin(stack: *const usize) -> ! {
        // SAFETY: the kernel puts argc, the argv pointers, NULL, the envp pointers and NULL at the stack's top.
        let process = unsafe {
            let argc = *stack;
            let argv = stack.add(1).cast();
            Process::new(argv, argv.add(argc + 1))
        };
        sys::exit(run(&process))
    }

    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        buildkite_shim::report::say(format_args!("{info}"));
        sys::exit(buildkite_shim::failure::OWN_FAULT)
    }

    // The compiler may call these by name. Volatile access keeps it from turning each loop into a call of the
    // very function it stands in. They move paths and messages, so a byte at a time is quick enough.
    // SAFETY for all of them: callers keep the contracts of the C functions of the same names.

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
        for at in 0..count {
            unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
        if ptr::addr_eq(to, from) || to.addr() < from.addr() {
            return unsafe { memcpy(to, from, count) };
        }
        for at in (0..count).rev() {
            unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
        for at in 0..count {
            unsafe { to.add(at).write_volatile(byte.to_le_bytes()[0]) };
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
        for at in 0..count {
            let (a, b) = unsafe { (left.add(at).read_volatile(), right.add(at).read_volatile()) };
            if a != b {
                return i32::from(a) - i32::from(b);
            }
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
        unsafe { memcmp(left, right, count) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn strlen(text: *const u8) -> usize {
        let mut count = 0;
        while unsafe { text.add(count).read_volatile() } != 0 {
            count += 1;
        }
        count
    }
}
