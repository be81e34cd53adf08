//! What the papers' figures are made of: round trips and streams over a range of lengths, each way right after the
//! other within one pair of processes, so that they can be compared whatever else the machine does.
//!
//! Both sides go through the same list of tests. Before each stands the bare ping-pong, which says how near the cores
//! are and keeps the sides in step.

use std::cell::Cell;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use comb_net::active::{Access as Grant, ActiveMessages};
use comb_net::emulated::{EmulatedEndpoint, Emulator};
use comb_net::global::GlobalMemory;
use comb_net::rpc::Rpc;
use comb_net::upcall::Gate;
use comb_net::via::{Descriptor, InterfaceOptions, Interfaces, Reliability, Side as Queue, Span, WorkError};
use comb_net::{Access, Agent, ChannelKey, Endpoint, RemoteWindow, Window};
use serde_json::{Value, json};

use crate::bare::Bare;
use crate::endpoint_way::EndpointWay;
use crate::socket_way::SocketWay;
use crate::via_way::ViaWay;
use crate::workload::{Answerer, Asker, Way, read_payload, write_payload};

const SOON: Duration = Duration::from_secs(10);
const MEASURED: Duration = Duration::from_millis(30);
const BATCH: u64 = 50;
const BARE_ROUNDS: u64 = 2000;
/// Messages whose sending, or receiving, is timed alone: fewer than a ring holds.
const UNATTENDED: u64 = 32;
const OVERHEAD_ROUNDS: u64 = 300;
/// Requests that may be outstanding: as many are sent in a row.
const REQUESTS: u64 = 16;
/// Longer than anybody spins before they sleep.
const PAUSE: Duration = Duration::from_micros(200);
const PAUSED_ROUNDS: u64 = 200;
/// Of a stream of global stores: two lie in a region.
const BLOCK_BYTES: usize = 4096;
const STORES: u64 = 512;
const IDLE_MESSAGES: u64 = 1000;

/// Lengths of round trips: Figure 2.3.
pub(crate) const ROUND_TRIP_BYTES: [usize; 11] = [4, 16, 32, 48, 64, 96, 128, 256, 512, 768, 1024];
/// Lengths of streams: Figure 2.4, with the lengths that its text names.
pub(crate) const STREAM_BYTES: [usize; 12] = [4, 16, 64, 128, 256, 512, 800, 1024, 2048, 4096, 4164, 5120];

const ECHO: u16 = 0;
const SYNC: u16 = 1;
const STOP: u16 = 2;
const REGION: u16 = 0;
const REGION_BYTES: usize = 8 << 10;
/// A block whose fragments are asked for in a row, as the thesis's series of gets: all are under way at once.
pub(crate) const SERIES_BYTES: usize = 64 << 10;
/// Of a message over emulated endpoints.
pub(crate) const EMULATED_BYTES: usize = 32;

/// What carries a plain message.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    Endpoint,
    Via,
    Socket,
    SpinningSocket,
}

impl Carrier {
    const ALL: [Self; 4] = [Self::Endpoint, Self::Via, Self::Socket, Self::SpinningSocket];

    fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Via => "via",
            Self::Socket => "socket",
            Self::SpinningSocket => "spinning socket",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Test {
    RoundTrip(Carrier, usize),
    Stream(Carrier, usize),
    /// Request and reply; polled by bytes if so.
    Active {
        bytes: usize,
        extracted: bool,
    },
    /// A block there and one back.
    Block(usize),
    Store(usize),
    /// Of what the last store left.
    Get(usize),
    /// What sending a request takes.
    ActiveOverhead,
    Emulated,
    /// Upcalls disabled and enabled again.
    Gate,
    Call(usize),
    SocketCall(usize),
    Put,
    GlobalStore,
    GlobalStream,
    Overheads(Carrier),
    /// The receiver was left alone for a while: it polls on, or sleeps.
    Paused(Carrier, bool),
    RdmaWrite,
    RdmaRead(usize),
    Register,
}

fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for bytes in ROUND_TRIP_BYTES {
        tests.extend(Carrier::ALL.map(|carrier| Test::RoundTrip(carrier, bytes)));
        tests.push(Test::Active { bytes, extracted: false });
        tests.push(Test::Block(bytes));
        tests.push(Test::Call(bytes));
        tests.push(Test::SocketCall(bytes));
    }
    for bytes in STREAM_BYTES {
        tests.extend(Carrier::ALL.map(|carrier| Test::Stream(carrier, bytes)));
        tests.push(Test::Store(bytes));
    }
    tests.extend([Test::Store(SERIES_BYTES), Test::Get(SERIES_BYTES), Test::Get(BLOCK_BYTES)]);
    tests.extend([Test::ActiveOverhead, Test::Emulated, Test::Gate]);
    tests.push(Test::Active { bytes: 4, extracted: true });
    tests.extend([Test::Put, Test::GlobalStore, Test::GlobalStream, Test::RdmaWrite]);
    tests.extend([Test::RdmaRead(8), Test::RdmaRead(1024), Test::Register]);
    for carrier in [Carrier::Endpoint, Carrier::SpinningSocket] {
        tests.push(Test::Overheads(carrier));
    }
    for (carrier, sleeps) in [
        (Carrier::Endpoint, false),
        (Carrier::Endpoint, true),
        (Carrier::SpinningSocket, false),
        (Carrier::Socket, true),
    ] {
        tests.push(Test::Paused(carrier, sleeps));
    }
    tests
}

/// What handlers of active messages have seen.
#[derive(Default)]
struct Seen {
    reply: u64,
    stored: u64,
    /// A block of that length is wanted back.
    wanted_bytes: Option<usize>,
    stop: bool,
}

/// One of the two processes, with all that it measures over.
pub(crate) struct Side<'a> {
    bare: &'a Bare,
    bare_round: Cell<u64>,
    endpoint: EndpointWay,
    windows: (RemoteWindow, Window),
    via: ViaWay,
    socket: SocketWay,
    spinning: SocketWay,
    active: (ActiveMessages<Seen>, ChannelKey),
    emulated: (EmulatedEndpoint, ChannelKey),
    calls: (Rpc, ChannelKey),
    calls_stopped: Arc<AtomicBool>,
    global: (GlobalMemory, u32),
    idle_bytes: u64,
    /// Its channel stays open: the other side may not have read all yet.
    _idle: Endpoint,
    read_refused: bool,
}

impl<'a> Side<'a> {
    /// Meets the other side over everything. Nobody spins in here: a spinning process could keep the agent from its
    /// core.
    pub(crate) fn meet(
        agent: &Agent,
        bare: &'a Bare,
        room: &Path,
        asks: bool,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let path = room.join("classic");
        let listener = if asks { Some(UnixListener::bind(&path)?) } else { None };
        // "bench" comes last: once it is there, the other side finds all of them.
        let [via, idle, active, emulated, calls, global, mut endpoint] =
            ["via", "idle", "active", "emulated", "calls", "global", "bench"]
                .map(|name| agent.endpoint(name));
        let channel = meet(endpoint.as_mut().map_err(|error| error.to_string())?, "bench", asks)?;
        let mut endpoint = endpoint?;
        let stream = || match &listener {
            Some(listener) => listener.accept().map(|(stream, _)| stream),
            None => UnixStream::connect(&path),
        };
        let (socket, spinning) = (SocketWay::new(stream()?, false)?, SocketWay::new(stream()?, true)?);
        let own = endpoint.make_window(channel, 4096, Access::Put)?;
        let theirs = endpoint.window(channel, SOON)?;
        let to = if asks { None } else { Some("asker/via") };
        let mut via = ViaWay::meet(Interfaces::new(via?), to)?;
        let read_refused = reading_is_refused(&mut via, to)?;
        let (idle_bytes, idle) = idle_bytes(idle?, asks)?;
        let mut active = ActiveMessages::new(active?, Seen::default());
        register(&mut active);
        let active_channel = if asks {
            active.accept(SOON).ok_or("no active messages")?
        } else {
            active.open("asker/active")?
        };
        let emulated = emulate(&Emulator::new(emulated?), asks)?;
        let mut calls = Rpc::new(calls?);
        let calls_stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&calls_stopped);
        calls.register(ECHO, |text: String| text);
        calls.register(STOP, move |()| stop.store(true, Ordering::Relaxed));
        let calls_channel =
            if asks { calls.accept(SOON).ok_or("no calls")? } else { calls.open("asker/calls")? };
        let components = ["asker/global", "answerer/global"];
        let mut global = GlobalMemory::join(global?, &components, SOON)?;
        let window = global.make(REGION_BYTES, SOON)?;
        let mut endpoint = EndpointWay::new(endpoint, channel);
        endpoint.wait_for_the_other_side();
        Ok(Self {
            bare,
            bare_round: Cell::new(0),
            endpoint,
            windows: (theirs, own),
            via,
            socket,
            spinning,
            active: (active, active_channel),
            emulated,
            calls: (calls, calls_channel),
            calls_stopped,
            global: (global, window),
            idle_bytes,
            _idle: idle,
            read_refused,
        })
    }

    fn next_bare_round(&self) -> u64 {
        self.bare_round.set(self.bare_round.get() + 1);
        self.bare_round.get()
    }

    fn bare_ns(&self) -> f64 {
        let batches = (0..BARE_ROUNDS / BATCH).map(|_| {
            let start = Instant::now();
            for _ in 0..BATCH {
                self.bare.ping(self.next_bare_round());
            }
            nanoseconds(start) / BATCH as f64
        });
        median(&batches.collect::<Vec<_>>())
    }
}

// ── who asks ──

impl Side<'_> {
    pub(crate) fn ask(&mut self, mut tell: impl FnMut(Value)) -> Result<(), Box<dyn std::error::Error>> {
        for test in tests() {
            let bare_ns = self.bare_ns();
            for mut line in self.measure(test)? {
                line["bare_ns"] = json!(bare_ns);
                tell(line);
            }
        }
        tell(json!({"peer": "idle channel", "test": "value", "bytes": 0, "value": self.idle_bytes}));
        let refused = u8::from(self.read_refused);
        tell(json!({"peer": "rdma read refused", "test": "value", "bytes": 0, "value": refused}));
        Ok(())
    }

    fn measure(&mut self, test: Test) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
        Ok(vec![match test {
            Test::RoundTrip(carrier, bytes) => {
                let measured = match carrier {
                    Carrier::Endpoint => Asker(&mut self.endpoint, MEASURED).round_trip(bytes),
                    Carrier::Via => Asker(&mut self.via, MEASURED).round_trip(bytes),
                    Carrier::Socket => Asker(&mut self.socket, MEASURED).round_trip(bytes),
                    Carrier::SpinningSocket => Asker(&mut self.spinning, MEASURED).round_trip(bytes),
                };
                time(carrier.name(), "round_trip", bytes, measured.median_ns)
            }
            Test::Stream(carrier, bytes) => {
                let rate = match carrier {
                    Carrier::Endpoint => Asker(&mut self.endpoint, MEASURED).messages_per_second(bytes),
                    Carrier::Via => Asker(&mut self.via, MEASURED).messages_per_second(bytes),
                    Carrier::Socket => Asker(&mut self.socket, MEASURED).messages_per_second(bytes),
                    Carrier::SpinningSocket => Asker(&mut self.spinning, MEASURED).messages_per_second(bytes),
                };
                bandwidth(carrier.name(), bytes, rate)
            }
            Test::Active { bytes, extracted } => self.active_round_trip(bytes, extracted)?,
            Test::Block(bytes) => self.block_round_trip(bytes)?,
            Test::Store(bytes) => self.stores(bytes)?,
            Test::Get(bytes) => self.gets(bytes)?,
            Test::ActiveOverhead => self.active_overhead()?,
            Test::Emulated => {
                let ns = counted(|round| {
                    self.send_emulated(round);
                    assert_eq!(self.receive_emulated(), round);
                });
                time("emulated", "round_trip", EMULATED_BYTES, ns)
            }
            Test::Gate => {
                let gate = Gate::default();
                time("gate", "time", 0, timed(|_| drop(std::hint::black_box(&gate).disable())))
            }
            Test::Call(bytes) => {
                let (calls, channel) = &mut self.calls;
                let text = "x".repeat(bytes);
                let ns = timed(|_| {
                    let back: String = calls.call(*channel, ECHO, &text, SOON).expect("a live peer");
                    assert_eq!(back.len(), bytes);
                });
                calls.call::<_, ()>(*channel, STOP, &(), SOON)?;
                time("call", "round_trip", bytes, ns)
            }
            Test::SocketCall(bytes) => {
                let text = "x".repeat(bytes);
                let ns = timed(|_| assert_eq!(self.socket.call(u32::from(ECHO), &text).len(), bytes));
                self.socket.call(u32::from(STOP), "");
                time("socket call", "round_trip", bytes, ns)
            }
            Test::Put => {
                let (theirs, own) = &self.windows;
                let endpoint = &mut self.endpoint.endpoint;
                let ns = counted(|round| {
                    endpoint.put(theirs, 0, &round.to_le_bytes()).expect("a live window");
                    await_word(own, round);
                });
                time("put", "round_trip", 8, ns)
            }
            Test::GlobalStore => {
                let (memory, window) = &mut self.global;
                let to = memory.pointer(1, *window, 0)?;
                let ns = counted(|round| {
                    memory.store(to, &round.to_le_bytes()).expect("a live window");
                    memory.await_stored(*window, 8, SOON).expect("a live peer");
                });
                time("global store", "round_trip", 8, ns)
            }
            Test::GlobalStream => {
                let (memory, window) = &mut self.global;
                let to = memory.pointer(1, *window, 0)?;
                let mut block = vec![0; BLOCK_BYTES];
                let ns = counted(|round| {
                    // Two places in turn: the reader is at most one block behind.
                    if round > 2 {
                        memory.await_stored(*window, 8, SOON).expect("a live peer");
                    }
                    write_payload(&mut block, round);
                    let place = to.advance(round % 2 * BLOCK_BYTES as u64);
                    memory.store(place, &block).expect("a live window");
                });
                memory.await_stored(*window, 16, SOON)?;
                bandwidth("global store", BLOCK_BYTES, 1e9 / ns)
            }
            Test::RdmaWrite => {
                let ns = counted(|round| {
                    self.via.rdma_write(round);
                    self.via.await_written(round);
                });
                time("rdma write", "round_trip", 8, ns)
            }
            Test::RdmaRead(bytes) => {
                time("rdma read", "round_trip", bytes, timed(|_| self.via.rdma_read(bytes)))
            }
            Test::Register => {
                let mut memory = vec![0; 4096];
                let (via, tag) = (&mut self.via.via, self.via.tag);
                let ns = timed(|_| {
                    let handle = via.register(std::mem::take(&mut memory), tag);
                    memory = via.deregister(handle).expect("not in use");
                });
                time("register", "time", 4096, ns)
            }
            Test::Overheads(carrier) => return Ok(self.overheads(carrier)),
            Test::Paused(carrier, sleeps) => self.paused(carrier, sleeps)?,
        }])
    }

    fn active_round_trip(&mut self, bytes: usize, extracted: bool) -> Result<Value, comb_net::ActiveError> {
        let (active, channel) = &mut self.active;
        let mut payload = vec![0; bytes];
        let ns = timed(|number| {
            write_payload(&mut payload, number);
            active.request(*channel, ECHO, &[], &payload).expect("a live peer");
            while active.state().reply != number + 1 {
                if extracted { active.extract(64) } else { active.poll() }.expect("a live peer");
            }
        });
        active.request(*channel, STOP, &[], &[])?;
        let name = if extracted { "extract" } else { "active" };
        Ok(time(name, "round_trip", bytes, ns))
    }

    fn block_round_trip(&mut self, bytes: usize) -> Result<Value, comb_net::ActiveError> {
        let (active, channel) = &mut self.active;
        let mut block = vec![0; bytes];
        let ns = timed(|number| {
            write_payload(&mut block, number);
            active.store(*channel, REGION, 0, &[1], &block).expect("a live peer");
            while active.state().stored != number + 1 {
                active.poll().expect("a live peer");
            }
        });
        active.request(*channel, STOP, &[], &[])?;
        Ok(time("block", "round_trip", bytes, ns))
    }

    fn stores(&mut self, bytes: usize) -> Result<Value, comb_net::ActiveError> {
        let (active, channel) = &mut self.active;
        let mut block = vec![0; bytes];
        let mut taken = Vec::new();
        let start = Instant::now();
        let mut batch = 0;
        while start.elapsed() < MEASURED || batch < 3 {
            batch += 1;
            let batch_start = Instant::now();
            for number in 0..STORES {
                write_payload(&mut block, number);
                active.store(*channel, REGION, 0, &[], &block)?;
            }
            active.request(*channel, SYNC, &[batch], &[])?;
            while active.state().reply != batch {
                active.poll().expect("a live peer");
            }
            taken.push(nanoseconds(batch_start));
        }
        active.request(*channel, STOP, &[], &[])?;
        Ok(bandwidth("store", bytes, STORES as f64 * 1e9 / median(&taken)))
    }

    fn gets(&mut self, bytes: usize) -> Result<Value, comb_net::ActiveError> {
        let (active, channel) = &mut self.active;
        let mut block = vec![0; bytes];
        let ns = timed(|_| {
            active.get(*channel, REGION, 0, &mut block).expect("a live peer");
            read_payload(&block);
        });
        active.request(*channel, STOP, &[], &[])?;
        Ok(bandwidth("get", bytes, 1e9 / ns))
    }

    fn active_overhead(&mut self) -> Result<Value, comb_net::ActiveError> {
        let (active, channel) = &mut self.active;
        let mut taken = Vec::new();
        for round in 0..OVERHEAD_ROUNDS {
            let start = Instant::now();
            for _ in 0..REQUESTS {
                active.request(*channel, SYNC, &[round], &[])?;
            }
            taken.push(nanoseconds(start) / REQUESTS as f64);
            while active.outstanding(*channel) > 0 {
                active.poll().expect("a live peer");
            }
        }
        active.request(*channel, STOP, &[], &[])?;
        Ok(time("active", "send", 8, median(&taken)))
    }

    fn overheads(&mut self, carrier: Carrier) -> Vec<Value> {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for _ in 0..OVERHEAD_ROUNDS {
            let way = self.way(carrier);
            let start = Instant::now();
            for number in 0..UNATTENDED {
                way.send(8, number);
            }
            sends.push(nanoseconds(start) / UNATTENDED as f64);
            // The other side answers when it has received all, and when it has sent all of its own.
            self.bare.ping(self.next_bare_round());
            self.bare.ping(self.next_bare_round());
            let way = self.way(carrier);
            let start = Instant::now();
            for number in 0..UNATTENDED {
                assert_eq!(way.receive(8), number);
            }
            receives.push(nanoseconds(start) / UNATTENDED as f64);
        }
        vec![
            time(carrier.name(), "send", 8, median(&sends)),
            time(carrier.name(), "receive", 8, median(&receives)),
        ]
    }

    fn paused(&mut self, carrier: Carrier, sleeps: bool) -> std::io::Result<Value> {
        self.socket.set_spinning(true)?;
        let way = self.way(carrier);
        let taken = (0..PAUSED_ROUNDS).map(|number| {
            let pause = Instant::now();
            while pause.elapsed() < PAUSE {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            way.send(8, number);
            assert_eq!(way.receive(8), number);
            nanoseconds(start)
        });
        let ns = median(&taken.collect::<Vec<_>>());
        self.socket.set_spinning(false)?;
        let kind = if carrier.name() == "endpoint" { "endpoint" } else { "socket" };
        Ok(time(kind, if sleeps { "slept" } else { "polled" }, 8, ns))
    }

    fn way(&mut self, carrier: Carrier) -> &mut dyn Way {
        match carrier {
            Carrier::Endpoint => &mut self.endpoint,
            Carrier::Via => &mut self.via,
            Carrier::Socket => &mut self.socket,
            Carrier::SpinningSocket => &mut self.spinning,
        }
    }
}

// ── who answers ──

impl Side<'_> {
    pub(crate) fn answer(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        for test in tests() {
            for _ in 0..BARE_ROUNDS {
                self.bare.pong(self.next_bare_round());
            }
            self.answer_one(test)?;
        }
        Ok(())
    }

    fn answer_one(&mut self, test: Test) -> Result<(), Box<dyn std::error::Error>> {
        match test {
            Test::RoundTrip(Carrier::Endpoint, bytes) => Answerer(&mut self.endpoint).round_trip(bytes),
            Test::RoundTrip(Carrier::Via, bytes) => Answerer(&mut self.via).round_trip(bytes),
            Test::RoundTrip(Carrier::Socket, bytes) => Answerer(&mut self.socket).round_trip(bytes),
            Test::RoundTrip(Carrier::SpinningSocket, bytes) => Answerer(&mut self.spinning).round_trip(bytes),
            Test::Stream(Carrier::Endpoint, bytes) => Answerer(&mut self.endpoint).stream(bytes),
            Test::Stream(Carrier::Via, bytes) => Answerer(&mut self.via).stream(bytes),
            Test::Stream(Carrier::Socket, bytes) => Answerer(&mut self.socket).stream(bytes),
            Test::Stream(Carrier::SpinningSocket, bytes) => Answerer(&mut self.spinning).stream(bytes),
            Test::Active { .. } | Test::Block(_) | Test::Store(_) | Test::Get(_) | Test::ActiveOverhead => {
                self.serve_active()?;
            }
            Test::Emulated => {
                counted(|round| {
                    assert_eq!(self.receive_emulated(), round);
                    self.send_emulated(round);
                });
            }
            Test::Call(_) => {
                while !self.calls_stopped.swap(false, Ordering::Relaxed) {
                    self.calls.0.poll()?;
                }
            }
            Test::SocketCall(_) => self.socket.serve(u32::from(STOP)),
            Test::Put => {
                let (theirs, own) = &self.windows;
                let endpoint = &mut self.endpoint.endpoint;
                counted(|round| {
                    await_word(own, round);
                    endpoint.put(theirs, 0, &round.to_le_bytes()).expect("a live window");
                });
            }
            Test::GlobalStore => {
                let (memory, window) = &mut self.global;
                let to = memory.pointer(0, *window, 0)?;
                counted(|round| {
                    memory.await_stored(*window, 8, SOON).expect("a live peer");
                    memory.store(to, &round.to_le_bytes()).expect("a live window");
                });
            }
            Test::GlobalStream => {
                let (memory, window) = &mut self.global;
                let (own, to) = (memory.pointer(1, *window, 0)?, memory.pointer(0, *window, 0)?);
                let mut block = vec![0; BLOCK_BYTES];
                counted(|round| {
                    memory.await_stored(*window, BLOCK_BYTES as u64, SOON).expect("a live peer");
                    let place = own.advance(round % 2 * BLOCK_BYTES as u64);
                    memory.get(place, &mut block).expect("our own");
                    assert_eq!(read_payload(&block), round);
                    memory.store(to, &round.to_le_bytes()).expect("a live window");
                });
            }
            Test::RdmaWrite => {
                counted(|round| {
                    self.via.await_written(round);
                    self.via.rdma_write(round);
                });
            }
            Test::RdmaRead(_) | Test::Register | Test::Gate => {}
            Test::Overheads(carrier) => {
                for _ in 0..OVERHEAD_ROUNDS {
                    let way = self.way(carrier);
                    for number in 0..UNATTENDED {
                        assert_eq!(way.receive(8), number);
                    }
                    self.bare.pong(self.next_bare_round());
                    let way = self.way(carrier);
                    for number in 0..UNATTENDED {
                        way.send(8, number);
                    }
                    self.bare.pong(self.next_bare_round());
                }
            }
            Test::Paused(Carrier::Endpoint, true) => {
                let way = &mut self.endpoint;
                let mut word = [0; 8];
                for _ in 0..PAUSED_ROUNDS {
                    way.endpoint.receive_within(&mut word, SOON)?.ok_or("nothing came")?;
                    way.send(8, u64::from_le_bytes(word));
                }
            }
            Test::Paused(carrier, _) => {
                let way = self.way(carrier);
                for _ in 0..PAUSED_ROUNDS {
                    let number = way.receive(8);
                    way.send(8, number);
                }
            }
        }
        Ok(())
    }

    fn serve_active(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let (active, channel) = &mut self.active;
        let mut block = vec![0; SERIES_BYTES];
        while !std::mem::take(&mut active.state_mut().stop) {
            active.poll()?;
            if let Some(bytes) = active.state_mut().wanted_bytes.take() {
                let number = active.state().stored;
                write_payload(&mut block[..bytes], number + 1);
                active.store(*channel, REGION, 0, &[], &block[..bytes])?;
            }
        }
        Ok(())
    }
}

// ── both ──

impl Side<'_> {
    fn send_emulated(&mut self, first: u64) {
        let (emulated, channel) = &mut self.emulated;
        let mut message = [0; EMULATED_BYTES];
        write_payload(&mut message, first);
        emulated.send(*channel, 0, &message).expect("one message at a time");
    }

    fn receive_emulated(&mut self) -> u64 {
        let mut message = [0; EMULATED_BYTES];
        while self.emulated.0.receive(&mut message).expect("a live peer").is_none() {}
        read_payload(&message)
    }
}

fn meet(endpoint: &mut Endpoint, name: &str, asks: bool) -> Result<ChannelKey, Box<dyn std::error::Error>> {
    if asks {
        Ok(endpoint.accept(SOON).ok_or("the other process did not come")?)
    } else {
        Ok(endpoint.open(&format!("asker/{name}"))?)
    }
}

fn emulate(
    emulator: &Emulator,
    asks: bool,
) -> Result<(EmulatedEndpoint, ChannelKey), Box<dyn std::error::Error>> {
    let mut endpoint = emulator.endpoint("bench")?;
    let channel = if asks {
        endpoint.accept(SOON).ok_or("no emulated endpoint came")?
    } else {
        endpoint.open("asker/emulated#bench", SOON)?
    };
    Ok((endpoint, channel))
}

fn register(active: &mut ActiveMessages<Seen>) {
    let mut answer = vec![0; 1024];
    active.on_request(ECHO, move |_, request| {
        let payload = request.payload();
        let bytes = payload.len();
        write_payload(&mut answer[..bytes], read_payload(payload) + 1);
        request.reply(ECHO, &[], &answer[..bytes]).expect("as long as what came");
    });
    active.on_request(SYNC, |_, request| {
        let arguments = request.arguments();
        request.reply(SYNC, arguments, &[]).expect("one word fits");
    });
    active.on_request(STOP, |seen, _| seen.stop = true);
    active.on_reply(ECHO, |seen, reply| seen.reply = read_payload(reply.payload));
    active.on_reply(SYNC, |seen, reply| seen.reply = reply.arguments[0]);
    active.add_region(REGION, vec![0; SERIES_BYTES], Grant::StoreAndGet, |seen, stored| {
        seen.stored = read_payload(stored.bytes);
        seen.wanted_bytes = (!stored.arguments.is_empty()).then_some(stored.bytes.len());
    });
}

/// Tries an RDMA read over an unreliable connection.
fn reading_is_refused(way: &mut ViaWay, to: Option<&str>) -> Result<bool, Box<dyn std::error::Error>> {
    let via = &mut way.via;
    let options = InterfaceOptions { reliability: Reliability::Unreliable, ..InterfaceOptions::new(way.tag) };
    let interface = via.new_interface(options);
    match to {
        Some(to) => via.connect(interface, to, SOON)?,
        None => drop(via.accept(interface, SOON)?),
    }
    let memory = via.register(vec![0; 8], way.tag);
    let read = Descriptor::rdma_read(&[Span { memory, offset: 0, bytes: 8 }], 0, 0);
    via.post_send(interface, read)?;
    let done = via.done_within(interface, Queue::Send, SOON).ok_or("the read never ended")?;
    Ok(done.outcome == Err(WorkError::Unreliable))
}

/// The memory that a new channel holds in this process after a thousand small messages each way.
fn idle_bytes(mut endpoint: Endpoint, asks: bool) -> Result<(u64, Endpoint), Box<dyn std::error::Error>> {
    let before = resident_bytes(&std::fs::read_to_string("/proc/self/smaps")?);
    let channel = meet(&mut endpoint, "idle", asks)?;
    let mut word = [0; 8];
    for number in 0..IDLE_MESSAGES {
        endpoint.send(channel, 0, &number.to_le_bytes())?;
        endpoint.receive_within(&mut word, SOON)?.ok_or("nothing came")?;
    }
    let after = resident_bytes(&std::fs::read_to_string("/proc/self/smaps")?);
    Ok((after.saturating_sub(before), endpoint))
}

/// Of the mappings of shared memory in a `/proc/…/smaps`.
fn resident_bytes(smaps: &str) -> u64 {
    let mut ours = false;
    let mut kilobytes = 0;
    for line in smaps.lines() {
        if let Some(resident) = line.strip_prefix("Rss:") {
            let number = resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
            kilobytes += if ours { number } else { 0 };
        } else if line.split(' ').next().is_some_and(|first| first.contains('-')) {
            ours = line.contains("/memfd:");
        }
    }
    kilobytes * 1024
}

const COUNTED: u64 = 5000;

/// The median time of a round, of as many as both sides know of.
fn counted(mut once: impl FnMut(u64)) -> f64 {
    let mut taken = Vec::new();
    for batch in 0..COUNTED / BATCH {
        let start = Instant::now();
        for round in 1..=BATCH {
            once(batch * BATCH + round);
        }
        taken.push(nanoseconds(start) / BATCH as f64);
    }
    median(&taken)
}

/// The median time of a round, of as many as fit.
fn timed(mut once: impl FnMut(u64)) -> f64 {
    let mut taken = Vec::new();
    let mut number = 0;
    let begun = Instant::now();
    while begun.elapsed() < MEASURED || taken.len() < 5 {
        let start = Instant::now();
        for _ in 0..BATCH {
            number += 1;
            once(number);
        }
        taken.push(nanoseconds(start) / BATCH as f64);
    }
    median(&taken)
}

fn await_word(window: &Window, word: u64) {
    while window.word(0).expect("our window") != word {
        std::hint::spin_loop();
    }
}

fn nanoseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e9
}

fn median(values: &[f64]) -> f64 {
    crate::net::median(values).expect("some rounds")
}

fn time(peer: &str, test: &str, bytes: usize, ns: f64) -> Value {
    json!({"peer": peer, "test": test, "bytes": bytes, "median_ns": ns})
}

fn bandwidth(peer: &str, bytes: usize, per_second: f64) -> Value {
    json!({"peer": peer, "test": "bandwidth", "bytes": bytes, "bytes_per_second": per_second * bytes as f64})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_memory_is_counted() {
        let smaps = "7f00-7f10 rw-s 00000000 00:01 5 /memfd:comb-ring (deleted)\nSize: 64 kB\nRss:  12 kB\n\
                     7f20-7f30 rw-p 00000000 00:00 0 [heap]\nRss: 400 kB\n";
        assert_eq!(resident_bytes(smaps), 12 * 1024);
    }
}
