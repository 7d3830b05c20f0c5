//! The one way into the kernel.

use super::Result;
use crate::errno::Errno;

/// # Safety
/// The arguments must be what the kernel expects for this call; pointers must be valid for what it does.
pub(super) unsafe fn call(number: i64, arguments: [usize; 6]) -> Result<usize> {
    // SAFETY: passed on to the caller.
    let result = unsafe { trap(number, arguments) };
    if (-4095..0).contains(&result) {
        Err(Errno(i32::try_from(-result).expect("error numbers are below 4096")))
    } else {
        Ok(result.cast_unsigned())
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn trap(number: i64, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the registers are those of the kernel's calling convention, and what it destroys is named.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
unsafe fn trap(number: i64, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the registers are those of the kernel's calling convention.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1], in("x2") arguments[2], in("x3") arguments[3],
            in("x4") arguments[4], in("x5") arguments[5],
            options(nostack)
        );
    }
    result
}
