//! What components write, on its way to whoever started them.

use std::io::Write;

use super::Output;
use super::crew::Stream;
use super::running::Printed;

/// A line that does not end is cut: a component that writes no newline must not cost memory without bound.
const LONGEST_LINE_BYTES: usize = 64 << 10;

/// Writes components' output where it belongs.
pub(super) struct Printer {
    output: Output,
    /// Of each component: what it wrote on each stream and is not a line yet, or all that it wrote.
    kept: Vec<Printed>,
}

impl Printer {
    pub(super) fn new(output: Output, components: u32) -> Self {
        Self { output, kept: vec![Printed::default(); components as usize] }
    }

    pub(super) fn print(&mut self, rank: u32, stream: Stream, bytes: &[u8]) {
        let kept = self.kept[rank as usize].of(stream);
        match self.output {
            Output::Inherited => write(stream, bytes),
            Output::Collected => kept.extend(bytes),
            Output::Labelled => {
                kept.extend(bytes);
                let whole = match kept.iter().rposition(|&byte| byte == b'\n') {
                    Some(end) => end + 1,
                    None if kept.len() >= LONGEST_LINE_BYTES => kept.len(),
                    None => return,
                };
                let lines: Vec<u8> = kept.drain(..whole).collect();
                write(stream, &label(rank, &lines));
            }
        }
    }

    /// A component has ended: what it wrote last is a line even without an end.
    pub(super) fn end(&mut self, rank: u32) {
        if self.output != Output::Labelled {
            return;
        }
        for stream in [Stream::Output, Stream::Error] {
            let rest = std::mem::take(self.kept[rank as usize].of(stream));
            if !rest.is_empty() {
                write(stream, &label(rank, &rest));
            }
        }
    }

    pub(super) fn collected(self) -> Vec<Printed> {
        if self.output == Output::Collected { self.kept } else { Vec::new() }
    }
}

/// Each line with its component before it. The last one gets an end if it has none.
fn label(rank: u32, lines: &[u8]) -> Vec<u8> {
    let mut labelled = Vec::with_capacity(lines.len() + 64);
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        labelled.extend(format!("[{rank}] ").bytes());
        labelled.extend(line);
    }
    if !lines.ends_with(b"\n") {
        labelled.push(b'\n');
    }
    labelled
}

/// At once, so that two components' lines do not mix. Nobody may read it any more: the task goes on.
fn write(stream: Stream, bytes: &[u8]) {
    let _ = match stream {
        Stream::Output => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Stream::Error => std::io::stderr().lock().write_all(bytes),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_gets_its_label_and_the_last_one_an_end() {
        assert_eq!(label(3, b"a\n\nb"), b"[3] a\n[3] \n[3] b\n");
    }

    #[test]
    fn what_is_collected_stays_apart_by_component_and_stream() {
        let mut printer = Printer::new(Output::Collected, 2);
        printer.print(1, Stream::Output, b"one");
        printer.print(1, Stream::Error, b"bad");
        printer.print(1, Stream::Output, b"two");
        let printed = printer.collected();
        assert_eq!((&printed[1].output[..], &printed[1].error[..]), (&b"onetwo"[..], &b"bad"[..]));
        assert_eq!(printed[0], Printed::default());
    }
}
