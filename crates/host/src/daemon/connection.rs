//! What the agent has of a cell's connection: what is said on it waits for a cell that does not read.

use super::*;

/// A cell's connection, and which cell has said hello on it.
#[derive(Debug)]
pub(super) struct CellConnection {
    pub(super) socket: OwnedFd,
    pub(super) pid: u32,
    pub(super) cell: Option<u32>,
    pub(super) since: Instant,
    /// Orders that its queue had no room for, each with the file that comes along.
    pub(super) unsent: Vec<(Order, Option<Arc<OwnedFd>>)>,
    /// The tasks that it was told of.
    pub(super) tasks: Vec<TaskHere>,
}

impl CellConnection {
    /// Tells the cell, now or when it has read what it was told before: a queue takes a few hundred messages. `false`:
    /// not now.
    pub(super) fn tell(&mut self, order: &Order) -> bool {
        self.tell_with(order, None)
    }

    pub(super) fn tell_with(&mut self, order: &Order, file: Option<Arc<OwnedFd>>) -> bool {
        // Only the last word on who is present counts, on each cell's end, and on what it shows. So the list of a cell that never
        // reads stays short.
        self.unsent.retain(|(unsent, _)| match (unsent, order) {
            (Order::Peers { .. }, Order::Peers { .. })
            | (Order::Hints { .. }, Order::Hints { .. })
            | (Order::Tasks { .. }, Order::Tasks { .. })
            | (Order::Elsewhere { .. }, Order::Elsewhere { .. }) => false,
            (Order::Ended { cell: one, .. }, Order::Ended { cell: other, .. })
            | (Order::Shows { cell: one, .. }, Order::Shows { cell: other, .. }) => one != other,
            _ => true,
        });
        self.unsent.push((order.clone(), file));
        self.send_unsent()
    }

    pub(super) fn send_unsent(&mut self) -> bool {
        let send = |(order, file): &&(Order, Option<Arc<OwnedFd>>)| {
            let files: Vec<BorrowedFd<'_>> = file.iter().map(|file| file.as_fd()).collect();
            protocol::send(&self.socket, order, &files).is_ok()
        };
        let sent = self.unsent.iter().take_while(send).count();
        self.unsent.drain(..sent);
        self.unsent.is_empty()
    }
}

/// Who commands, by the kernel's word.
pub(super) fn user_of(socket: &OwnedFd) -> Result<u32, String> {
    let who = rustix::net::sockopt::socket_peercred(socket).map_err(|error| error.to_string())?;
    Ok(who.uid.as_raw())
}
