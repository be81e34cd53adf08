//! The pass over the table of sessions.

use std::path::Path;

use foldhash::{HashMap, HashSet};

use super::{Common, Gathered, unsigned};
use crate::Operation;
use crate::history::open_flag;
use crate::store::{INSTANCE, StoreError, TableReader};

impl Gathered {
    pub(super) fn read_instances(
        &mut self,
        tables: &Path,
        programs: &HashMap<i64, i64>,
        remote: &HashSet<i64>,
    ) -> Result<(), StoreError> {
        const COLUMNS: [&str; 18] = [
            "machine_id",
            "opened",
            "open_ns",
            "process_id",
            "user_id",
            "file_id",
            "type_id",
            "open_flags",
            "seen_from_its_open",
            "ending",
            "access",
            "pattern",
            "opened_size_bytes",
            "closed_size_bytes",
            "reads",
            "read_bytes",
            "writes",
            "written_bytes",
        ];
        let mut opened: Vec<(i64, i64, bool)> = Vec::new();
        let reader = TableReader::open(tables, INSTANCE)?;
        let mut columns_wanted = COLUMNS.to_vec();
        columns_wanted.extend(["missed_reads", "syncs"]);
        reader.read(&columns_wanted, &mut |columns, _| {
            for (row, _) in columns[0].iter().enumerate() {
                let of = |column: usize| columns[column][row];
                self.about.sessions += 1;
                let (machine, user, kind) = (of(0), of(4), of(6));
                let access = usize::try_from(of(10)).unwrap_or(0);
                let pattern = usize::try_from(of(11)).unwrap_or(0);
                let bytes = unsigned(of(15)).saturating_add(unsigned(of(17)));
                // Of what was open before, or still is, nobody knows how long it is.
                let open_ns = (of(8) == 1 && of(9) != 0).then(|| unsigned(of(2)));
                let program = programs.get(&of(3)).copied().unwrap_or(-1);
                let key = self.key(Common {
                    machine,
                    start_ns: of(1),
                    operation: (Operation::Open as u8).into(),
                    program,
                    user,
                    kind,
                });
                let user_group = Some(self.by_user.entry((machine, user)).or_default());
                let key_group = key.map(|key| self.groups.entry(key).or_default());
                for group in [user_group, key_group].into_iter().flatten() {
                    group.add_session(access, pattern, bytes, open_ns);
                }
                let has_data = access != 0;
                if of(8) == 1 {
                    opened.push((machine, of(1), has_data));
                }
                if has_data {
                    self.data_sessions += 1;
                    let size = unsigned(of(12).max(of(13)));
                    self.sizes_by_operations.record(size, unsigned(of(14)).saturating_add(unsigned(of(16))));
                    self.sizes[access.min(3) - 1].record(size, bytes);
                    self.samples.file_bytes.add(size);
                    self.samples.session_bytes.add(bytes);
                    self.samples.session_operations.add(unsigned(of(14)).saturating_add(unsigned(of(16))));
                    self.session_sizes.record(bytes, bytes);
                    if let Some(open_ns) = open_ns {
                        let place = if remote.contains(&of(5)) {
                            &mut self.open_remote
                        } else {
                            &mut self.open_local
                        };
                        place.record(open_ns, 1);
                        self.open_by_access[access.min(3) - 1].record(open_ns, 1);
                        self.samples.data_session_ns.add(open_ns);
                    }
                    if of(14) > 0 {
                        self.read_sessions += 1;
                        self.read_sessions_of_one_miss += u64::from(of(18) <= 1);
                        self.single_read_sessions += u64::from(of(14) == 1);
                    }
                    if of(16) > 0 {
                        self.write_sessions += 1;
                        self.synced_write_sessions += u64::from(of(19) > 0);
                        let flags = of(7).cast_unsigned();
                        self.write_through_sessions +=
                            u64::from(flags & (open_flag::SYNCHRONOUS | open_flag::DIRECT) != 0);
                        self.temporary_sessions +=
                            u64::from(flags & open_flag::TEMPORARY == open_flag::TEMPORARY);
                    }
                } else {
                    self.control_sessions += 1;
                    if let Some(open_ns) = open_ns {
                        self.open_control.record(open_ns, 1);
                        self.samples.control_session_ns.add(open_ns);
                    }
                }
            }
        })?;
        self.see_gaps(opened);
        Ok(())
    }

    fn see_gaps(&mut self, mut opened: Vec<(i64, i64, bool)>) {
        opened.sort_unstable();
        for pair in opened.windows(2) {
            let [(machine, before_ns, _), (same, now_ns, has_data)] = *pair else { continue };
            if machine != same {
                continue;
            }
            let gap = unsigned(now_ns.saturating_sub(before_ns));
            self.samples.open_gap_ns.add(gap);
            (if has_data { &mut self.gap_data } else { &mut self.gap_control }).record(gap, 1);
        }
    }
}
