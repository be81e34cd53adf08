//! What is known of this processor.

/// AMD's family in which a pause costs more than it saves: in hexadecimal 1A, Zen 5.
const AMD_WITH_LONG_PAUSES: u32 = 26;

/// Whether who has looked in vain pauses before the next look: everywhere but on AMD's family 26.
///
/// Makers advise a pause, and it was measured to pay on one processor, whose model is not recorded: who looks again at once takes the line
/// from the peer that is about to write it, and a round trip takes a tenth to a quarter longer. On AMD's family 26 it was measured to cost:
/// it takes 24 ns, and a message waits for its end. Without it, round trips whose payloads are read take two thirds of the time,
/// though an echo that reads nothing takes up to a sixth longer. (`docs/papers/unet.md`)
pub(crate) fn pauses_between_looks() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let (vendor, version) = (std::arch::x86_64::__cpuid(0), std::arch::x86_64::__cpuid(1).eax);
        pause_pays([vendor.ebx, vendor.edx, vendor.ecx], version)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    true
}

/// That of a processor whose vendor is written in these three words, in the order in which they spell it, and whose signature is `version`
/// (CPUID leaf 0: EBX, EDX, ECX; leaf 1: EAX).
#[cfg_attr(
    not(all(target_arch = "x86_64", not(miri))),
    expect(dead_code, reason = "other processors have no CPUID")
)]
fn pause_pays(vendor: [u32; 3], version: u32) -> bool {
    let is_amd = vendor.map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD";
    !(is_amd && family(version) == AMD_WITH_LONG_PAUSES)
}

/// The family in a signature: four bits of it in the old place, and what they have no room for in the new one, which counts only if
/// those four are all set.
fn family(version: u32) -> u32 {
    const MOST: u32 = 0xf;
    let base = version >> 8 & MOST;
    if base == MOST { base + (version >> 20 & 0xff) } else { base }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vendor and signature, as CPUID gives them.
    fn words(vendor: &[u8; 12]) -> [u32; 3] {
        [0, 4, 8].map(|at| u32::from_le_bytes(vendor[at..at + 4].try_into().expect("four")))
    }

    const AMD: &[u8; 12] = b"AuthenticAMD";
    const INTEL: &[u8; 12] = b"GenuineIntel";

    #[test]
    fn the_family_is_the_sum_of_two_fields_where_the_first_is_full() {
        let signatures = [
            // EPYC 9005 and Ryzen 9000, Zen 5.
            (0x00b0_0f21, 26),
            (0x00b4_0f40, 26),
            // EPYC 9004 (Zen 4) and 7003 (Zen 3).
            (0x00a1_0f11, 25),
            (0x00a0_0f11, 25),
            // EPYC 7002, Zen 2.
            (0x0083_0f10, 23),
            // Opteron, family 15: the second field is there and is zero.
            (0x0002_0f10, 15),
            // Sapphire Rapids: its model's upper bits stand beside the second field and do not count.
            (0x000c_06f8, 6),
            // Intel's family 19 (Diamond Rapids).
            (0x0040_0f10, 19),
            // The second field counts only beside a full first.
            (0x0140_0610, 6),
            // It has eight bits; no processor has needed the fifth yet.
            (0x0110_0f00, 32),
        ];
        for (version, expected) in signatures {
            assert_eq!(family(version), expected, "{version:#x}");
        }
    }

    #[test]
    fn a_pause_pays_but_on_one_family_of_one_maker() {
        for zen_5 in [0x00b0_0f21, 0x00b4_0f40] {
            assert!(!pause_pays(words(AMD), zen_5), "{zen_5:#x}");
            // The number alone says nothing.
            assert!(pause_pays(words(INTEL), zen_5));
            assert!(pause_pays(words(b"HygonGenuine"), zen_5));
        }
        for other in [0x00a1_0f11, 0x0083_0f10, 0x0002_0f10] {
            assert!(pause_pays(words(AMD), other), "{other:#x}");
        }
        assert!(pause_pays(words(INTEL), 0x000c_06f8));
    }

    /// The kernel reads the same registers for itself.
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    #[test]
    fn this_processor_is_the_one_that_the_kernel_sees() {
        let told = std::fs::read_to_string("/proc/cpuinfo").expect("every Linux has it");
        let field = |name: &str| {
            let mut lines = told.lines().filter_map(|line| line.split_once(':'));
            lines
                .find(|(key, _)| key.trim() == name)
                .map(|(_, value)| value.trim())
                .expect("every processor has it")
        };
        let is_amd_26 = field("vendor_id") == "AuthenticAMD" && field("cpu family") == "26";
        assert_eq!(pauses_between_looks(), !is_amd_26);
    }
}
