//! `comb leave`: this host's cells end, and it belongs to no comb any more.

use std::process::ExitCode;

use clap::Args;
use comb_host::RuntimeDirectory;
use comb_host::control::{Reply, Request};
use comb_host::federation;
use comb_host::remains::{self, Found};
use comb_host::state_directory::StateDirectory;

use crate::failure::{Failure, Outcome};
use crate::{agent, down};

#[derive(Debug, Args)]
pub(crate) struct Leave {}

impl Leave {
    #[expect(clippy::unused_self, reason = "like all commands")]
    pub(crate) fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        if matches!(remains::look(&directory)?, Found::Agent) {
            let Reply::Down(down) = agent::ask(&directory, &Request::Leave)? else {
                return Err(agent::unexpected());
            };
            println!(
                "ended {} and their agent; this host has left the comb",
                down::cells(down.ended + down.killed)
            );
            return Ok(ExitCode::SUCCESS);
        }
        let files = StateDirectory::from_environment();
        let Some(saved) = federation::saved(&files).map_err(Failure::new)? else {
            println!("this host belongs to no comb with others");
            return Ok(ExitCode::SUCCESS);
        };
        federation::forget(&files);
        let others = saved.members.iter().map(|member| &*member.name).filter(|name| *name != saved.own);
        println!(
            "this host belongs to no comb any more; no agent runs here that could tell the others ({}): `comb host rm {}` there",
            others.collect::<Vec<_>>().join(", "),
            saved.own
        );
        Ok(ExitCode::SUCCESS)
    }
}
