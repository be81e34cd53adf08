//! Three members in one process, to see what a plug-in makes of them.

use std::error::Error;
use std::time::Duration;

use comb_group::environment::Environment;
use comb_group::{Config, Event, Group, GroupOptions, Names, NodeId};
use comb_net::{EndpointOptions, InProcess};

/// The first member has the plug-in. Says what happens, until it is stopped.
pub(crate) fn watch(plug_in: impl Environment + Send + 'static) -> Result<(), Box<dyn Error>> {
    let agent = InProcess::start();
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let nodes = [0, 1, 2].map(NodeId);
    let member = |own| -> Result<Group, Box<dyn Error>> {
        let (config, endpoint) = (Config::default(), EndpointOptions::default());
        let options = GroupOptions { names: names.clone(), config, endpoint };
        let agent = agent.connect(&names.process(own))?;
        Ok(Group::configured(&agent, own, &nodes, options)?)
    };
    let mut members = vec![member(nodes[0])?.with_environment(plug_in), member(nodes[1])?, member(nodes[2])?];
    loop {
        for member in &mut members {
            member.poll();
        }
        while let Some(event) = members[0].next_event() {
            match event {
                Event::View(view) => {
                    println!("view {}: {:?}", view.epoch.0, view.nodes().collect::<Vec<_>>());
                }
                Event::Condition(change) => println!("{}: {:?}", change.subject.node, change.condition),
                _ => {}
            }
        }
        let idle = members.iter().map(Group::nothing_is_due_for).min().unwrap_or_default();
        members[0].wait(idle.min(Duration::from_millis(10)));
    }
}
