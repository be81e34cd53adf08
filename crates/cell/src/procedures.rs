//! What cells offer each other to call.

use crate::calls::{Desk, Served};

/// Nothing, at once: what a call costs.
pub const NULL: u16 = 0;
/// Nothing, by a thread of the pool: what it costs to be put off.
pub const NULL_QUEUED: u16 = 1;
/// The arguments, back.
pub const ECHO: u16 = 2;

/// Offers all of them.
pub fn offer(desk: &mut Desk) {
    desk.offer(NULL, Box::new(|_, _| Served::Done(Vec::new())));
    desk.offer(NULL_QUEUED, Box::new(|_, _| Served::Later(Box::new(|| Ok(Vec::new())))));
    desk.offer(
        ECHO,
        Box::new(|_, arguments| {
            let answer = arguments.to_vec();
            Served::Done(answer)
        }),
    );
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use comb_net::agent::server::InProcess;
    use comb_types::CellId;

    use super::*;
    use crate::calls::{CallError, LONGEST_SENT, LONGEST_SHOWN};
    use crate::links::Links;
    use crate::shown::{Others, Shown, reopened_to_read};
    use crate::supervision::process_name;

    const LIMIT: Duration = Duration::from_secs(20);

    /// Two cells, in one process.
    struct Pair {
        cells: Vec<(Links, Shown)>,
        _agent: InProcess,
    }

    impl Pair {
        fn new() -> Self {
            let agent = InProcess::start();
            let others = [Others::default(), Others::default()];
            let mut cells = Vec::new();
            for number in 1..=2 {
                let shown = Shown::create(CellId(number), 1).unwrap();
                let file = shown.file().try_clone_to_owned().unwrap();
                let file = reopened_to_read(&file).unwrap();
                // Each sees the other.
                others[2 - number as usize].see(CellId(number), 1, std::process::id(), &file).unwrap();
                let process = agent.connect(&process_name(number)).unwrap();
                let mut desk = Desk::new(shown.published().clone(), others[number as usize - 1].clone()).unwrap();
                offer(&mut desk);
                desk.offer(9, Box::new(|_, _| Served::Refused("not today".to_owned())));
                desk.offer(10, Box::new(|_, _| Served::Later(Box::new(|| Err("not even later".to_owned())))));
                desk.offer(
                    11,
                    Box::new(|_, _| {
                        Served::Later(Box::new(|| {
                            std::thread::sleep(Duration::from_secs(3600));
                            Ok(Vec::new())
                        }))
                    }),
                );
                cells.push((Links::new(&process, CellId(number), desk).unwrap(), shown));
            }
            cells[1].0.present = [1].into();
            while cells[1].0.channel(CellId(1)).is_none() {
                cells[1].0.open_to_lower();
            }
            Self { cells, _agent: agent }
        }

        fn call(&mut self, procedure: u16, arguments: &[u8], limit: Duration) -> Result<Vec<u8>, CallError> {
            let call = self.cells[1].0.call(CellId(1), procedure, arguments, limit)?;
            let since = Instant::now();
            loop {
                for (links, _) in &mut self.cells {
                    links.poll();
                }
                self.cells[1].0.desk().expire();
                if let Some((number, answer)) = self.cells[1].0.next_answer() {
                    assert_eq!(number, call);
                    return answer;
                }
                assert!(since.elapsed() < LIMIT, "no answer");
            }
        }
    }

    #[test]
    fn a_call_is_answered_at_once_or_later_or_refused_and_never_not_at_all() {
        let mut pair = Pair::new();
        assert_eq!(pair.call(NULL, &[], LIMIT), Ok(Vec::new()));
        assert_eq!(pair.call(NULL_QUEUED, &[], LIMIT), Ok(Vec::new()));
        assert_eq!(pair.call(ECHO, b"some", LIMIT), Ok(b"some".to_vec()));
        assert_eq!(pair.call(9, &[], LIMIT), Err(CallError::Refused("not today".to_owned())));
        assert_eq!(pair.call(10, &[], LIMIT), Err(CallError::Refused("not even later".to_owned())));
        assert!(matches!(pair.call(77, &[], LIMIT), Err(CallError::Refused(why)) if why.contains("no procedure 77")));
        let short = Duration::from_millis(20);
        assert_eq!(pair.call(11, &[], short), Err(CallError::Late(short)));
        // And goes on after that.
        assert_eq!(pair.call(NULL_QUEUED, &[], LIMIT), Ok(Vec::new()));
        assert_eq!(pair.cells[1].0.call(CellId(7), NULL, &[], LIMIT), Err(CallError::Unreachable));
        drop(pair.cells.remove(0));
        let call = pair.cells[0].0.call(CellId(1), NULL, &[], LIMIT);
        let answer = loop {
            pair.cells[0].0.poll();
            if call == Err(CallError::Unreachable) {
                break None;
            }
            if let Some((_, answer)) = pair.cells[0].0.next_answer() {
                break Some(answer);
            }
        };
        assert!(answer.is_none_or(|answer| matches!(answer, Err(CallError::Gone(_) | CallError::Unreachable))));
    }

    #[test]
    fn long_arguments_are_shown_and_read_carefully() {
        let mut pair = Pair::new();
        for length in [LONGEST_SENT, LONGEST_SENT + 1, 20_001] {
            let arguments: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            assert_eq!(pair.call(ECHO, &arguments, LIMIT), Ok(arguments), "{length} bytes");
        }
        let long = vec![0; LONGEST_SHOWN + 1];
        assert_eq!(pair.call(NULL, &long, LIMIT), Err(CallError::TooLong(long.len())));
        // Nothing that was shown is left, however often.
        for _ in 0..200 {
            assert_eq!(pair.call(NULL, &long[1..], LIMIT), Ok(Vec::new()));
        }
        // The caller's memory is cut off meanwhile.
        pair.cells[1].1.cut_off();
        assert!(matches!(pair.call(NULL, &long[1..], LIMIT), Err(CallError::Refused(why)) if why.contains("cut itself off")));
    }
}
