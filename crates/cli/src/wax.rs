//! `comb wax`: the policy. The agent runs it when its cells are up.

use std::process::ExitCode;

use clap::Args;
use comb_cell::hints::INCARNATION_VARIABLE;
use comb_host::RuntimeDirectory;
use comb_policy::wax;

use crate::failure::{Failure, Outcome};

#[derive(Debug, Args)]
pub(crate) struct Wax {}

impl Wax {
    #[expect(clippy::unused_self, reason = "like all commands")]
    pub(crate) fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        let incarnation = std::env::var(INCARNATION_VARIABLE).ok().and_then(|text| text.parse().ok());
        let incarnation = incarnation.ok_or_else(|| Failure::new(wax::WaxError::NoAgent.to_string()))?;
        let _ = rustix::thread::set_name(c"comb-wax");
        match wax::run(directory.cells_socket(), incarnation) {
            // That a cell is gone is no failure of ours.
            Ok(()) | Err(wax::WaxError::Lost(_)) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(Failure::new(error.to_string())),
        }
    }
}
