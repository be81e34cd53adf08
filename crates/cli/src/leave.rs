//! `comb leave`: this host's cells end, and it belongs to no comb any more.

use std::process::ExitCode;

use clap::Args;
use comb_host::RuntimeDirectory;
use comb_host::control::{Reply, Request};
use comb_host::federation;
use comb_host::remains::{self, Found};
use comb_host::state_directory::StateDirectory;

use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::{agent, down};

#[derive(Debug, Args)]
pub(crate) struct Leave {}

impl Leave {
    #[expect(clippy::unused_self, reason = "like all commands")]
    pub(crate) fn run(self, output: Output) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        if matches!(remains::look(&directory)?, Found::Agent) {
            let Reply::Down(down) = agent::ask(&directory, &Request::Leave)? else {
                return Err(agent::unexpected());
            };
            let cells = down::cells(down.ended + down.killed);
            let text = format!("ended {cells} and their agent; this host has left the comb");
            output.tell(&json!({ "ended": down.ended, "killed": down.killed }), text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let files = StateDirectory::from_environment();
        let Some(saved) = federation::saved(&files).map_err(Failure::new)? else {
            output.tell(&json!({ "ended": 0 }), "this host belongs to no comb with others")?;
            return Ok(ExitCode::SUCCESS);
        };
        federation::forget(&files);
        let others = saved.members.iter().map(|member| &*member.name).filter(|name| *name != saved.own);
        let others: Vec<&str> = others.collect();
        let text = format!(
            "this host belongs to no comb any more; no agent runs here that could tell the others ({}): `comb host rm {}` there",
            others.join(", "),
            saved.own
        );
        output.tell(&json!({ "ended": 0, "untold": others }), text)?;
        Ok(ExitCode::SUCCESS)
    }
}
