//! Whether a processor goes: how often the kernel's clock has come round on it.

/// The clock of one processor, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pulse {
    pub(super) processor: usize,
    /// How often it has come round.
    pub(super) count: u64,
}

impl Pulse {
    /// `None`: this kernel does not say it, or not to us.
    pub(super) fn of(processor: usize) -> Option<Self> {
        Self::among(&std::fs::read_to_string("/proc/interrupts").ok()?, processor)
    }

    fn among(interrupts: &str, processor: usize) -> Option<Self> {
        let mut lines = interrupts.lines();
        // A column for each processor that is there, which need not be all.
        let name = format!("CPU{processor}");
        let column = lines.next()?.split_whitespace().position(|column| column == name)?;
        let is_clock =
            |line: &&str| ["LOC:", "arch_timer", "riscv-timer"].iter().any(|clock| line.contains(clock));
        let count = lines.find(is_clock)?.split_whitespace().nth(1 + column)?.parse().ok()?;
        Some(Self { processor, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_processor_is_found_among_its_interrupts() {
        let x86 = "      CPU0   CPU2\n  8:   1   2  IO-APIC  8-edge  rtc0\nNMI:  3  4  Non-maskable interrupts\nLOC:  17  19  Local timer interrupts\n";
        assert_eq!(Pulse::among(x86, 2), Some(Pulse { processor: 2, count: 19 }));
        assert_eq!(Pulse::among(x86, 1), None, "it is not there");
        let arm = "      CPU0   CPU1\n 11:  40   41   GICv3  27 Level  arch_timer\nIPI0:  5  6  Rescheduling interrupts\n";
        assert_eq!(Pulse::among(arm, 1), Some(Pulse { processor: 1, count: 41 }));
        for nothing in ["", "CPU0\n", "CPU0\nLOC:\n", "CPU0\nLOC: many\n"] {
            assert_eq!(Pulse::among(nothing, 0), None);
        }
    }
}
