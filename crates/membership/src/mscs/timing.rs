//! The timers of MSCS, each with the place that says so. None of them adapts to anything, which is part of the baseline.

use core::time::Duration;

/// "heartbeats are sent every 1.2 seconds" (§7.6.1).
pub const HEARTBEAT: Duration = Duration::from_millis(1200);

/// "the detection period for a node suspicion is 7.2 seconds (6 missed heartbeats)": so long that legacy hardware under
/// load is not suspected wrongly (§7.6.1).
pub const SUSPICION: Duration = Duration::from_millis(7200);

/// ClusNet "performs checks every 600 millisecond": both for missing heartbeats and for a joiner's first (§7.7.1, phase 4).
pub const CHECK: Duration = Duration::from_millis(600);

/// "During regroup the nodes periodically (300ms) broadcast their current state" (§7.7.2). Also the tick that phase one
/// waits for before it trusts its timers.
pub const REGROUP_TICK: Duration = Duration::from_millis(300);

/// "The minimum timeout for phase 1 is 2.4 second": with one node missing, no longer is waited (§7.7.2).
pub const ACTIVATE_LEAST: Duration = Duration::from_millis(2400);

/// "If multiple nodes do not respond, the algorithm waits for 9.6 seconds"; in cautious mode always (§7.7.2).
pub const ACTIVATE_MOST: Duration = Duration::from_millis(9600);

/// "In case of incomplete connectivity information the tiebreaker waits for an additional second" (§7.7.2, closing). Here
/// also how long closing bears that two nodes closed over different sets, before it starts anew with caution.
pub const CLOSING_EXTRA: Duration = Duration::from_secs(1);

/// That later phases time out, and that this leads to cautious mode, is said (§7.7.2); how long they wait is not. We take the
/// only maximum that there is.
pub const LATER_PHASE: Duration = ACTIVATE_MOST;

/// A discovery connect to a node that is down: "The timeout value for RPC out-of-the-box is approximately 30 seconds"
/// (§7.7.1, phase 1).
pub const CONNECT: Duration = Duration::from_secs(30);

/// "but it can be manipulated to reduce the discovery phase to 10 seconds" (§7.7.1, phase 1).
pub const CONNECT_TUNED: Duration = Duration::from_secs(10);

/// When the sponsor gives up a joiner that is still in phase three: "takes longer than 60 seconds, causing the join
/// operation to time-out at the sponsor" (§7.7.1, phase 3). The joiner bears a silent sponsor no longer either.
pub const ENABLE: Duration = Duration::from_secs(60);

/// After an aborted join, the service starts over. The thesis does not say when; soon, but not at once, so that members that
/// learn of the abort by global update have learned.
pub const JOIN_AGAIN: Duration = Duration::from_secs(5);

/// How long an RPC waits before its request is sent again. DCE RPC over datagrams asks again after about a second; the thesis
/// only says that there is no bound while keep-alives are honoured (§7.8). It matters only where messages are lost.
pub const RPC_AGAIN: Duration = Duration::from_secs(1);
