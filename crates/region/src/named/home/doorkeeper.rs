//! Who stands at the door: lets processes in, and does what a person asks.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use comb_net::agent::credentials::{self, Credentials};
use comb_net::agent::listener::Listener;
use comb_net::agent::protocol;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::net::sockopt::Timeout;

use comb_containment::{CellId, tree};
use comb_memory::Published;
use comb_types::Incarnation;

use super::body::Attachment;
use super::forking::{Ancestors, NodeFiles, OtherCells};
use super::shared::Shared;
use super::{Books, Office, REMOVED};
use crate::named::door::{Answer, Ask, Knock, Wanted};
use crate::named::keeper::Reference;
use crate::named::register::{self, Entry};
use crate::named::saving;
use crate::named::{ADDRESSES, Mode, Owner};
use crate::pages_file::CheckpointError;
use crate::terms::{Allocation, Guard, Placement, Sharing, Terms};

/// Who has come in by the door has said who it is on a channel within this.
const ENTRY_LIMIT: Duration = Duration::from_secs(10);
/// Who knocks says what it wants.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// A process that is stopped, or has lost its way, does not give back what it alone has.
const HOMECOMING_LIMIT: Duration = Duration::from_secs(5);
/// What is under way takes some microseconds for each message.
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);
/// Changes of an importer's page tables take microseconds. A process for which they take so long keeps all others waiting.
const FENCE_LIMIT: Duration = Duration::from_secs(2);
/// Blocks of a snapshot that are taken out at once: others are served in between.
const BLOCKS_AT_ONCE: usize = 64;
/// As many as can knock at once.
const MOST_AT_THE_DOOR: usize = 64;

pub(super) fn listen(office: &Office) -> Result<OwnedFd, Errno> {
    let path = register::door(office.runtime(), office.options.cell);
    let _ = std::fs::remove_file(&path);
    Listener::bind(&path)
}

/// Lets in whoever knocks, each with a thread of its own.
pub(super) fn keep(office: &Arc<Office>, door: &OwnedFd) {
    let guests = Arc::new(());
    while !office.is_over.load(Ordering::Acquire) {
        let mut sources = [PollFd::new(door, PollFlags::IN), PollFd::new(&office.kick, PollFlags::empty())];
        let limit = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut sources, Some(&limit));
        // Whoever serves cannot look after itself.
        comb_memory::guests::end_who_keeps_waiting(FENCE_LIMIT);
        let Ok(guest) = rustix::net::accept_with(door, SocketFlags::CLOEXEC) else { continue };
        if Arc::strong_count(&guests) > MOST_AT_THE_DOOR {
            let _ = protocol::send(&guest, &Answer::Refused("too many are at the door".to_owned()), &[]);
            continue;
        }
        let (office, present) = (Arc::clone(office), Arc::clone(&guests));
        let receives = move || {
            Guest { office: &office, socket: &guest, attached: None }.receive();
            drop(present);
        };
        // Without a thread, it is hung up on.
        let _ = std::thread::Builder::new().name("comb-guest".to_owned()).spawn(receives);
    }
}

/// Somebody at the door.
struct Guest<'a> {
    office: &'a Office,
    socket: &'a OwnedFd,
    /// What it imports as soon as it has handed over the guard of its memory: region and number there.
    attached: Option<(u64, u32)>,
}

impl Guest<'_> {
    fn receive(&mut self) {
        let _ = rustix::net::sockopt::set_socket_timeout(self.socket, Timeout::Recv, Some(SILENCE_LIMIT));
        let Ok(who) = credentials::of_peer(self.socket) else { return };
        while let Ok((knock, descriptors)) = protocol::receive::<Knock>(self.socket) {
            let (answer, frames) = match self.hear(&who, knock, descriptors) {
                Ok(answer) => answer,
                Err(why) => (Answer::Refused(why), Vec::new()),
            };
            let frames: Vec<BorrowedFd<'_>> = frames.iter().map(AsFd::as_fd).collect();
            if protocol::send(self.socket, &answer, &frames).is_err() {
                break;
            }
        }
        // It was let in, and has not gone on.
        if let Some((offset, number)) = self.attached {
            self.office.books().drop_attachment(offset, number);
        }
    }

    fn hear(
        &mut self,
        who: &Credentials,
        knock: Knock,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<(Answer, Vec<OwnedFd>), String> {
        let answer = match knock {
            Knock::Create(wanted) => Answer::Created(self.create(who, &wanted)?),
            Knock::Attach { name, to_store, imports } => {
                return self.attach(who, &name, to_store, imports);
            }
            Knock::Guard { address } => {
                let guard = descriptors.pop().ok_or("no guard was handed over")?;
                self.guard(who, guard, address)?;
                Answer::Guarded
            }
            Knock::Remove { name, even_if_used } => {
                Answer::Removed { attached: self.remove(who, &name, even_if_used)? }
            }
            Knock::Report => {
                let books = self.office.books();
                let own = self.office.options.cell;
                Answer::Report(books.regions.values().map(|region| region.status(own)).collect())
            }
            Knock::Save { name, directory } => {
                let (number, pages) = self.save(who, &name, &directory)?;
                Answer::Saved { number, pages }
            }
            Knock::Fork { name, cell } => return self.fork(who, &name, cell),
            Knock::Node { node, life } => {
                of_a_cell(who)?;
                self.is_of_this(life)?;
                let books = self.office.books();
                let mut regions = books.regions.values().filter(|region| region.body.forks.has(node));
                let body = &regions.next().ok_or("there is no such node")?.body;
                return Ok((Answer::Node, body.forks.files(node, body.exports.file_to_read())?));
            }
            Knock::ForkEnded { node, life, cell } => {
                of_a_cell(who)?;
                self.is_of_this(life)?;
                let was_there = self.office.books().with_nodes(|books| {
                    let mut forks = books.regions.values_mut().map(|region| &mut region.body.forks);
                    forks.any(|forks| forks.child_ended(node, cell, false))
                });
                if !was_there {
                    return Err("there is no such child".to_owned());
                }
                Answer::Noted
            }
            Knock::Borrow { region, extents, cell } => {
                of_a_cell(who)?;
                let (frames, files) = self.office.loan(cell, region, extents)?;
                return Ok((Answer::Loaned { frames }, files));
            }
            Knock::GiveBack { region, cell } => {
                of_a_cell(who)?;
                self.office.take_loan_back(cell, region)?;
                Answer::Noted
            }
        };
        Ok((answer, Vec::new()))
    }

    /// Whoever speaks of a node of an earlier life does not mean what is in its place now.
    fn is_of_this(&self, life: u64) -> Result<(), String> {
        let is_ours = life == self.office.options.incarnation;
        if is_ours { Ok(()) } else { Err("there is no such node any more".to_owned()) }
    }

    /// Another home is to have a child of a region.
    fn fork(&self, who: &Credentials, name: &str, cell: u32) -> Result<(Answer, Vec<OwnedFd>), String> {
        of_a_cell(who)?;
        if self.office.books().named(name)?.is_too_deep() {
            self.get_from_ancestors(name)?;
        }
        let offset = self.freeze(who, name)?;
        let mut left = None;
        let forked = self.at_one_moment(offset, name, |region| {
            let end = region.body.layout.frame_bytes();
            region.body.exports.revoke(&(0..end));
            left = region.stay_shallow()?;
            let (body, entry) = (&mut region.body, region.entry.clone());
            let parent = body.ancestors.as_ref().map(|ancestors| ancestors.parent);
            let node = body.forks.split(body.layout.blocks(), parent, cell)?;
            let files = body.forks.files(node, body.exports.file_to_read())?;
            Ok((Answer::Forked { entry, node }, files))
        })?;
        self.office.books().with_nodes(|_| ());
        if let Some(left) = left {
            self.office.leave_parent(&left);
        }
        Ok(forked)
    }

    /// A region of another home, or of this one, as it was a moment ago: what a child of it is like, and where that looks for what it has not got.
    fn parent(&self, who: &Credentials, name: &str) -> Result<(Entry, Ancestors), String> {
        let options = &self.office.options;
        let (Some(published), Some(others)) = (options.published.clone(), options.others.clone()) else {
            return Err("regions of this home have no children: it is in no cell".to_owned());
        };
        let (door, entry) = Ask::about(&options.runtime, name).map_err(|error| error.to_string())?;
        allow_by(&entry, who, false)?;
        let (entry, node, files) = door.fork(name, options.cell).map_err(|error| error.to_string())?;
        let node = tree::Far { cell: CellId(entry.cell), life: Incarnation(entry.incarnation), offset: node };
        let gathered = self.gather(node, files, published, others);
        gathered.map(|ancestors| (entry, ancestors)).inspect_err(|_| {
            let _ = door.fork_ended(node, options.cell);
        })
    }

    /// By what all ancestors of a node are read.
    fn gather(
        &self,
        node: tree::Far,
        files: Vec<OwnedFd>,
        published: Arc<Published>,
        others: Arc<dyn OtherCells>,
    ) -> Result<Ancestors, String> {
        let strange = || format!("{node} came without its descriptors");
        let mut ancestors = Ancestors::new(node, published, others, self.office.guilty.clone());
        ancestors.files.insert(node, NodeFiles::of(files).ok_or_else(strange)?);
        for above in ancestors.chain().map_err(|error| error.to_string())?.into_iter().skip(1) {
            let files = Ask::at(&self.office.options.runtime, above.cell.0).and_then(|door| door.node(above));
            let files = files.map_err(|error| error.to_string())?;
            ancestors.files.insert(above, NodeFiles::of(files).ok_or_else(strange)?);
        }
        Ok(ancestors)
    }

    fn create(&self, who: &Credentials, wanted: &Wanted) -> Result<Entry, String> {
        register::check_name(&wanted.name).map_err(|error| error.to_string())?;
        let parent = wanted.parent.as_deref().map(|parent| self.parent(who, parent)).transpose()?;
        let created = self.create_of(who, wanted, parent.as_ref().map(|(entry, _)| entry));
        match (created, parent) {
            (Ok((entry, mut region)), parent) => {
                region.body.ancestors = parent.map(|(_, ancestors)| ancestors);
                self.install(&entry, region)?;
                Ok(entry)
            }
            (Err(why), parent) => {
                if let Some((_, ancestors)) = parent {
                    self.office.leave_parent(&ancestors);
                }
                Err(why)
            }
        }
    }

    /// It is there from now on.
    fn install(&self, entry: &Entry, region: Shared) -> Result<(), String> {
        let mut books = self.office.books();
        if let Some(showing) = &mut books.showing {
            showing.show(entry).map_err(|error| error.to_string())?;
        }
        books.regions.insert(entry.allocation.offset, region);
        Ok(())
    }

    fn create_of(
        &self,
        who: &Credentials,
        wanted: &Wanted,
        parent: Option<&Entry>,
    ) -> Result<(Entry, Shared), String> {
        let saved = match &wanted.from {
            Some(directory) => Some(saving::Opened::open(directory).map_err(|error| error.to_string())?),
            None => None,
        };
        let parents = parent.map(|parent| parent.allocation);
        let bytes = match (parents.map(|parents| parents.bytes).or(wanted.bytes), &saved) {
            (Some(bytes), Some(saved)) if bytes < saved.bytes() => {
                return Err(format!("the checkpoint is of {} bytes, and {bytes} are too few", saved.bytes()));
            }
            (Some(bytes), _) => bytes,
            (None, Some(saved)) => saved.bytes(),
            (None, None) => return Err("how long is it to be?".to_owned()),
        };
        let sharing = if wanted.migratory { Sharing::Migratory } else { Sharing::Stache };
        let (guard, placement) = (Guard::Page, Placement::At(0));
        let terms = Terms {
            block_bytes: wanted.block_bytes,
            guard,
            sharing,
            placement,
            sparse: wanted.sparse,
            moves: false,
        };
        let terms = parents.map_or(terms, |parents| parents.terms);
        if terms.block_bytes < 4096 {
            return Err("its blocks are guarded by pages: 4096 bytes at least".to_owned());
        }
        let longest = ADDRESSES.end - ADDRESSES.start;
        if bytes > longest / 2 {
            return Err(format!(
                "{bytes} bytes are more than a region can have: at most {} TiB",
                longest >> 41
            ));
        }
        let layout = terms.layout(ADDRESSES.start, bytes).map_err(|error| error.to_string())?;
        let available = crate::task::available_bytes();
        if !wanted.sparse && bytes > available {
            return Err(format!(
                "{bytes} bytes are more than this host's memory and swap have left ({available}); a region that is to be touched here and there \
                 alone can be made sparse"
            ));
        }
        let generation = self.office.books().next_generation(0);
        let owner = Owner { user: who.uid, group: who.gid };
        let options = &self.office.options;
        let entry = self.office.register.enter(&wanted.name, layout.span(), |offset| Entry {
            name: wanted.name.clone(),
            cell: options.cell,
            incarnation: options.incarnation,
            owner,
            mode: wanted.mode,
            allocation: Allocation { offset, bytes, generation, creator: 0, terms, image: 0 },
            saved: wanted.from.clone(),
        });
        let entry = entry.map_err(|error| error.to_string())?;
        let made = self.office.frames_for(&entry, wanted.memory_home).and_then(|(exports, provenance)| {
            let mut region = Shared::new(entry.clone(), exports, options.published.clone());
            region.provenance = provenance;
            let filled = match &saved {
                Some(saved) => saved.fill(&mut region).map_err(|error| error.to_string()),
                None => Ok(()),
            };
            region.saved = saved.as_ref().map(saving::Opened::as_saved).unwrap_or_default();
            let reference = Reference::Frames { region: entry.allocation.offset };
            let kept = filled.and_then(|()| self.office.keep(reference, &[region.body.exports.file()]));
            match kept {
                Ok(()) => Ok(region),
                Err(why) => {
                    self.office
                        .give_frames_back(entry.allocation.offset, std::mem::take(&mut region.provenance));
                    Err(why)
                }
            }
        });
        made.map(|region| (entry, region)).inspect_err(|_| {
            let _ = self.office.register.remove(&wanted.name);
        })
    }

    fn attach(
        &mut self,
        who: &Credentials,
        name: &str,
        to_store: bool,
        imports: bool,
    ) -> Result<(Answer, Vec<OwnedFd>), String> {
        if self.attached.is_some() {
            return Err("one region a knock".to_owned());
        }
        let mut books = self.office.books();
        let region = books.named(name)?;
        allow(region, who, to_store)?;
        let is_migratory = region.entry.allocation.terms.sharing == Sharing::Migratory;
        if is_migratory && !to_store && !imports {
            return Err(
                "who reads a copy of a migratory region takes it from all others: attach to store".to_owned()
            );
        }
        let frames = if imports {
            let frames = region.body.exports.file().try_clone_to_owned();
            vec![frames.map_err(|error| format!("its home has no descriptor left: {error}"))?]
        } else {
            Vec::new()
        };
        let proof = RandomState::new().build_hasher().finish();
        let attachment = Attachment {
            rank: None,
            proof,
            process: who.pid,
            cell: self.office.cell_of(who.pid),
            to_store,
            importer: None,
            leaves: None,
        };
        let allocation = region.entry.allocation;
        let number = region.attach(attachment, imports);
        drop(books);
        self.attached = Some((allocation.offset, number));
        let answer = Answer::Attached { allocation, number, proof };
        if !imports {
            self.expect();
        }
        Ok((answer, frames))
    }

    fn guard(&mut self, who: &Credentials, guard: OwnedFd, address: u64) -> Result<(), String> {
        let (offset, number) = self.attached.ok_or("nothing is attached yet")?;
        let importer = {
            let mut books = self.office.books();
            let region = books.regions.get_mut(&offset).ok_or("the region was removed meanwhile")?;
            let attachment = region.body.attachments.get(&number);
            attachment.and_then(|one| one.importer).ok_or("it was attached for copies")?
        };
        if address != comb_memory::HEAP_START as u64 + offset {
            return Err("a region has one address".to_owned());
        }
        // Before anything is shown: from then on it has something to lose.
        let reference = Reference::Guard { region: offset, importer, address };
        self.office.keep(reference, &[guard.as_fd(), who.process.as_fd()])?;
        let address = usize::try_from(address).map_err(|error| error.to_string())?;
        let process = who.process.try_clone().map_err(|error| error.to_string())?;
        let mut books = self.office.books();
        let region = books.regions.get_mut(&offset).ok_or("the region was removed meanwhile")?;
        region.body.exports.admit(importer, guard, address, process).map_err(|error| error.to_string())?;
        drop(books);
        self.expect();
        Ok(())
    }

    /// It goes on by a channel now, or is forgotten.
    fn expect(&mut self) {
        let Some((offset, number)) = self.attached.take() else { return };
        let mut books = self.office.books();
        books.expected.push((Instant::now() + ENTRY_LIMIT, offset, number));
        drop(books);
        self.office.kick();
    }

    fn remove(&self, who: &Credentials, name: &str, even_if_used: bool) -> Result<u32, String> {
        let mut books = self.office.books();
        let region = books.named(name)?;
        if who.uid != 0 && who.uid != region.entry.owner.user {
            return Err(format!("{name} is user {}'s to remove", region.entry.owner.user));
        }
        let attached = u32::try_from(region.body.attachments.len()).unwrap_or(u32::MAX);
        if attached > 0 && !even_if_used {
            let processes: Vec<String> =
                region.body.attachments.values().map(|one| one.process.to_string()).collect();
            return Err(format!(
                "{name} is in use by process {}; with --force it is removed all the same, and lost to them",
                processes.join(", ")
            ));
        }
        if region.is_frozen || region.body.snapshot.is_some() {
            return Err(format!("{name} is being saved: try again when that is done"));
        }
        if region.body.forks.count() > 0 {
            return Err(format!("{name} has children that have not got all of it: remove those first"));
        }
        let offset = region.entry.allocation.offset;
        let (ancestors, provenance) = (region.body.ancestors.take(), std::mem::take(&mut region.provenance));
        books.remove(offset);
        drop(books);
        if let Some(keeper) = &self.office.options.keeper {
            keeper.release(offset);
        }
        self.office.give_frames_back(offset, provenance);
        if let Some(ancestors) = ancestors {
            self.office.leave_parent(&ancestors);
        }
        self.office.register.remove(name).map_err(|error| error.to_string())?;
        Ok(attached)
    }

    /// Blocks that are still with ancestors come here a few at a time, so that nobody else has to wait for that.
    fn get_from_ancestors(&self, name: &str) -> Result<(), String> {
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.office.books().named(name)?.get_some_from_ancestors(from);
        }
        Ok(())
    }

    /// A region stands still from now on: where it begins.
    fn freeze(&self, who: &Credentials, name: &str) -> Result<u64, String> {
        let mut books = self.office.books();
        let region = books.named(name)?;
        allow(region, who, false)?;
        if region.is_frozen || region.body.snapshot.is_some() {
            return Err(format!("{name} is being saved already"));
        }
        let offset = region.entry.allocation.offset;
        let Books { regions, peers, .. } = &mut *books;
        regions.get_mut(&offset).expect("just found").freeze(peers);
        drop(books);
        self.office.kick();
        Ok(offset)
    }

    /// When all of a frozen region is at home, something is done with it, and it moves again.
    fn at_one_moment<R>(
        &self,
        offset: u64,
        name: &str,
        work: impl FnOnce(&mut Shared) -> Result<R, String>,
    ) -> Result<R, String> {
        let frozen_at = Instant::now();
        let done = loop {
            let mut books = self.office.books();
            let Books { regions, peers, .. } = &mut *books;
            let Some(region) = regions.get_mut(&offset) else {
                return Err(format!("{name} was removed meanwhile"));
            };
            let is_home = region.is_home(peers);
            if !is_home && frozen_at.elapsed() <= HOMECOMING_LIMIT {
                drop(books);
                std::thread::sleep(BETWEEN_LOOKS);
                continue;
            }
            let done = if is_home {
                work(region)
            } else {
                let away: Vec<u64> = region.away().take(3).collect();
                Err(format!(
                    "a process that has blocks of {name} alone ({away:?} …) does not give them back within {HOMECOMING_LIMIT:?}; nothing was done"
                ))
            };
            let late = region.thaw();
            books.hear_late(late);
            break done;
        };
        self.office.kick();
        done
    }

    fn save(&self, who: &Credentials, name: &str, directory: &Path) -> Result<(u64, u64), String> {
        self.get_from_ancestors(name)?;
        let offset = self.freeze(who, name)?;
        let mut saving = self.at_one_moment(offset, name, |region| {
            let mut begun = saving::Saving::begin(directory, &region.entry, &region.saved);
            if let Ok(saving) = &mut begun {
                saving.announce(region.begin_snapshot(saving.is_whole()));
            }
            begun.map_err(|error| error.to_string())
        })?;
        // The disk takes its time, and nobody waits for it.
        let written = self.write(offset, &mut saving).and_then(|()| saving.finish());
        let mut books = self.office.books();
        let Some(region) = books.regions.get_mut(&offset) else {
            return Err(format!("{name} was removed meanwhile"));
        };
        match written {
            Ok((saved, number, pages)) => {
                region.body.snapshot = None;
                region.entry.saved = saved.place().map(Path::to_owned);
                region.saved = saved;
                self.office.register.renew(&region.entry).map_err(|error| error.to_string())?;
                Ok((number, pages))
            }
            Err(error) => {
                region.give_snapshot_up(saving.blocks());
                Err(error.to_string())
            }
        }
    }

    fn write(&self, offset: u64, saving: &mut saving::Saving) -> Result<(), CheckpointError> {
        loop {
            let blocks = {
                let mut books = self.office.books();
                let Some(region) = books.regions.get_mut(&offset) else { return Ok(()) };
                if region.body.snapshot.is_none() {
                    return Err(CheckpointError::Discarded);
                }
                region.next_of_snapshot(BLOCKS_AT_ONCE)
            };
            if blocks.is_empty() {
                return Ok(());
            }
            for (block, content) in blocks {
                saving.put(block, &content)?;
            }
        }
    }
}

/// Only cells ask for nodes: they are their agent's user, as this one is.
fn of_a_cell(who: &Credentials) -> Result<(), String> {
    let is_ours = who.uid == rustix::process::geteuid().as_raw() || who.uid == 0;
    if is_ours { Ok(()) } else { Err("only cells ask for that".to_owned()) }
}

fn allow(region: &Shared, who: &Credentials, to_store: bool) -> Result<(), String> {
    allow_by(&region.entry, who, to_store)
}

fn allow_by(entry: &Entry, who: &Credentials, to_store: bool) -> Result<(), String> {
    let Entry { name, owner, mode, .. } = entry;
    if mode.allows(*owner, Owner { user: who.uid, group: who.gid }, to_store) {
        return Ok(());
    }
    let mode: &Mode = mode;
    let what = if to_store { "store to" } else { "read" };
    Err(format!("user {} may not {what} {name}: it is user {}'s, with mode {mode}", who.uid, owner.user))
}

impl Books {
    fn named(&mut self, name: &str) -> Result<&mut Shared, String> {
        let mut regions = self.regions.values_mut();
        regions.find(|region| region.entry.name == name).ok_or_else(|| {
            format!("there is no region {name} here; if it is being made, try again when it is")
        })
    }

    /// Somebody who came in by the door is not coming any more.
    pub(super) fn drop_attachment(&mut self, offset: u64, number: u32) {
        let Self { regions, peers, .. } = self;
        if let Some(region) = regions.get_mut(&offset) {
            region.detach(peers, number);
        }
    }

    /// Those who were let in and have not said by now who they are.
    pub(super) fn forget_late_comers(&mut self) {
        let now = Instant::now();
        let late: Vec<(u64, u32)> = self
            .expected
            .extract_if(.., |(limit, ..)| *limit < now)
            .map(|(_, offset, number)| (offset, number))
            .collect();
        for (offset, number) in late {
            let has_entered = self.regions.get(&offset).is_some_and(|region| {
                region.body.attachments.get(&number).is_none_or(|attachment| attachment.rank.is_some())
            });
            if !has_entered {
                self.drop_attachment(offset, number);
            }
        }
    }

    /// A region is no more. Who is attached is told so by the end of its channel, as if the cell were gone.
    fn remove(&mut self, offset: u64) {
        self.remove_for(offset, REMOVED);
    }

    /// The same, for that reason.
    pub(super) fn remove_for(&mut self, offset: u64, why: u64) {
        let Some(mut region) = self.regions.remove(&offset) else { return };
        if let Some(showing) = &mut self.showing {
            showing.hide(offset);
        }
        let numbers: Vec<u32> = region.body.attachments.keys().copied().collect();
        for number in numbers {
            if let Some(rank) = region.body.attachments[&number].rank {
                self.peers.send(rank, crate::wire::Kind::Freed, &[why, offset, 0, 0], &[]);
                self.dismissed.insert((rank, offset));
            }
            region.detach(&mut self.peers, number);
        }
        region.body.exports.close();
        self.closed.push(region.body.exports);
    }
}
