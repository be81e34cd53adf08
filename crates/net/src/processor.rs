//! What is known of this processor.

/// Whether who has looked in vain pauses before the next look.
///
/// Where a pause was measured to pay, who looks again at once takes the line from the peer that is about to write it, and a round trip
/// takes a tenth longer. On AMD's family 26 a pause takes 24 ns, and a message waits for its end: without one, round trips whose
/// payloads are read take two thirds of the time (`docs/papers/unet.md`). Other processors have not been measured: there a pause is
/// what their makers advise.
pub(crate) fn pauses_between_looks() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let (vendor, version) = (std::arch::x86_64::__cpuid(0), std::arch::x86_64::__cpuid(1).eax);
        let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
        let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
        !(is_amd && family == 26)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    true
}
