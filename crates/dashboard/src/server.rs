//! What is served.
//!
//! | request | answer |
//! |---|---|
//! | `GET /`, `GET /<file>` | the page; nothing of the comb is in it |
//! | `GET /api/state` | what is seen at this moment |
//! | `GET /api/stream` | the same about once a second, and what happens, as server-sent events |
//! | `POST /api/cells/<cell>/<kill, hang, drain or restart>` | does it |
//! | `GET /metrics` | for Prometheus |

use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use comb_host::RuntimeDirectory;
use comb_host::control::{self, Killed, Reply, Request};
use comb_host::events::Event;
use futures_core::Stream;
use serde_json::json;
use tokio::sync::{broadcast, mpsc, watch};

use crate::gather::{self, Seen};
use crate::pass::{Pass, Refusal, Right};
use crate::snapshot::Snapshot;
use crate::{metrics, page, visits};

/// Events that a slow reader may be behind. One that is more so misses some, and sees by their numbers that it does.
const MOST_BEHIND: usize = 1024;
/// Messages that wait for one reader.
const MOST_UNREAD: usize = 64;
/// What the agent may take for an action: it gives up on cells before.
const ACTION_LIMIT: Duration = Duration::from_secs(60);
/// What a word takes to be read.
const LAST_WORD: Duration = Duration::from_millis(100);
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// A page runs nothing but its own files, is shown in no other, and asks nobody else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What is needed to serve.
#[derive(Debug)]
pub struct Options {
    /// Whose comb.
    pub directory: RuntimeDirectory,
    /// Where the page is served.
    pub listener: TcpListener,
    /// Where metrics are served to anybody who asks; none: nowhere, but with a token they are at the page's address.
    pub metrics: Option<TcpListener>,
    /// Who knows this sees and acts.
    pub token: String,
    /// Who knows this sees.
    pub view_token: String,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// A socket cannot be used.
    #[error("the dashboard cannot be served: {0}")]
    Listen(#[from] std::io::Error),
}

/// All that handlers share.
#[derive(Clone)]
struct Office {
    directory: RuntimeDirectory,
    pass: Arc<Pass>,
    seen: Seen,
    /// Wakes whoever waits when the comb is taken down.
    over: watch::Sender<bool>,
}

/// Serves until the comb is taken down, or somebody says SIGTERM.
pub fn run(options: Options) -> Result<(), DashboardError> {
    let Options { directory, listener, metrics, token, view_token } = options;
    let (begins, beginnings) = std::sync::mpsc::channel();
    let (state, events) = (watch::channel(Arc::default()).0, broadcast::channel(MOST_BEHIND).0);
    let seen = Seen { state, events, begins };
    let pass = Arc::new(Pass { token, view_token });
    let office =
        Office { directory: directory.clone(), pass, seen: seen.clone(), over: watch::channel(false).0 };
    #[cfg(feature = "otlp")]
    crate::otlp::begin(directory.clone());
    let over = office.over.clone();
    let looked_at = seen.clone();
    std::thread::Builder::new().name("comb-look".to_owned()).spawn(move || {
        gather::run(&directory, &looked_at, &beginnings);
        over.send_replace(true);
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let tokio_listener = |listener: TcpListener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        };
        let (mut over, all_over) = (office.over.subscribe(), office.over.clone());
        tokio::spawn(visits::serve(tokio_listener(listener)?, routes(office.clone())));
        if let Some(metrics) = metrics {
            let routes = Router::new().route("/metrics", get(open_metrics)).with_state(office);
            tokio::spawn(visits::serve(tokio_listener(metrics)?, routes));
        }
        let mut told = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            _ = over.changed() => {}
            _ = told.recv() => drop(all_over.send_replace(true)),
        }
        // What is said last is to arrive.
        if seen.state.receiver_count() > 0 {
            tokio::time::sleep(LAST_WORD).await;
        }
        Ok(())
    })
}

fn routes(office: Office) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/{file}", get(file))
        .route("/metrics", get(closed_metrics))
        .route("/api/state", get(state))
        .route("/api/stream", get(stream))
        .route("/api/cells/{cell}/{action}", post(act))
        .with_state(office)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "this is a comb's dashboard, which goes by its address or localhost, and by no other name",
            ),
            Self::Site => (StatusCode::FORBIDDEN, "pages of other sites are not answered"),
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                "`comb dashboard` prints the address with the token that is missing",
            ),
            Self::Right => {
                (StatusCode::FORBIDDEN, "this address is for looking only: `comb dashboard` prints another")
            }
        };
        answer(status, &json!({ "error": error }))
    }
}

fn answer(status: StatusCode, object: &serde_json::Value) -> Response {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut response = (status, [kind], object.to_string()).into_response();
    close_up(response.headers_mut());
    response
}

/// What every answer says.
fn close_up(headers: &mut HeaderMap) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

// ── the page ──

async fn index(headers: HeaderMap) -> Response {
    served(&headers, "")
}

async fn file(headers: HeaderMap, Path(name): Path<String>) -> Response {
    served(&headers, &name)
}

fn served(headers: &HeaderMap, name: &str) -> Response {
    if let Err(refusal) = Pass::is_for_us(headers) {
        return refusal.into_response();
    }
    let Some(file) = page::find(name) else {
        return answer(StatusCode::NOT_FOUND, &json!({ "error": "there is no such page" }));
    };
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    let mut response = ([kind], file.content).into_response();
    close_up(response.headers_mut());
    response
}

// ── looking ──

/// What is seen, as it is for who may do that.
fn shown(state: &Snapshot, right: Right) -> String {
    let snapshot = Snapshot { may_act: right == Right::Act, ..state.clone() };
    serde_json::to_string(&snapshot).expect("plain data")
}

/// A look that is not older than a moment.
async fn look(office: &Office) -> Option<Arc<Snapshot>> {
    let mut states = office.seen.state.subscribe();
    let _ = office.seen.begins.send(());
    let fresh = tokio::time::timeout(LOOK_LIMIT, states.changed()).await;
    fresh.ok()?.ok()?;
    let state = Arc::clone(&states.borrow());
    Some(state)
}

async fn state(State(office): State<Office>, headers: HeaderMap) -> Response {
    let right = match office.pass.check(&headers, Right::See) {
        Ok(right) => right,
        Err(refusal) => return refusal.into_response(),
    };
    let Some(seen) = look(&office).await else {
        return answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": "the comb was taken down" }));
    };
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut response = ([kind], shown(&seen, right)).into_response();
    close_up(response.headers_mut());
    response
}

async fn closed_metrics(State(office): State<Office>, headers: HeaderMap) -> Response {
    match office.pass.check(&headers, Right::See) {
        Ok(_) => open_metrics(State(office)).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn open_metrics(State(office): State<Office>) -> Response {
    let Some(seen) = look(&office).await else {
        return answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": "the comb was taken down" }));
    };
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    let mut response = ([kind], metrics::text(&seen)).into_response();
    close_up(response.headers_mut());
    response
}

/// What a reader gets, until it goes away.
struct Messages(mpsc::Receiver<Message>);

impl Stream for Messages {
    type Item = Result<Message, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|message| message.map(Ok))
    }
}

async fn stream(State(office): State<Office>, headers: HeaderMap) -> Response {
    let right = match office.pass.check(&headers, Right::See) {
        Ok(right) => right,
        Err(refusal) => return refusal.into_response(),
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    let (sender, messages) = mpsc::channel(MOST_UNREAD);
    tokio::spawn(tell(office, right, last, sender));
    let mut response = Sse::new(Messages(messages)).keep_alive(KeepAlive::default()).into_response();
    close_up(response.headers_mut());
    response
}

/// Tells one reader what is seen and what happens. `last`: the event that it has seen last.
async fn tell(office: Office, right: Right, last: Option<u64>, reader: mpsc::Sender<Message>) {
    let (mut states, mut events) = (office.seen.state.subscribe(), office.seen.events.subscribe());
    let mut over = office.over.subscribe();
    let _ = office.seen.begins.send(());
    // What was before, so that a page that is opened late has something to tell, and one that comes back misses nothing.
    let before = past(&office.directory, last);
    let mut told = last.unwrap_or(0);
    for event in before {
        told = told.max(event.seq);
        if reader.send(happened(&event)).await.is_err() {
            return;
        }
    }
    loop {
        let message = tokio::select! {
            // Whoever has gone away is not looked for.
            () = reader.closed() => return,
            changed = states.changed() => {
                if changed.is_err() {
                    return;
                }
                let state = Arc::clone(&states.borrow_and_update());
                Message::default().event("state").data(shown(&state, right))
            }
            event = events.recv() => match event {
                Ok(event) if event.seq <= told => continue,
                Ok(event) => happened(&event),
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return,
            },
            _ = over.changed() => {
                let _ = reader.send(Message::default().event("bye").data("{}")).await;
                return;
            }
        };
        if reader.send(message).await.is_err() {
            return;
        }
    }
}

/// Events of before: all behind that one, or some of the last.
fn past(directory: &RuntimeDirectory, behind: Option<u64>) -> Vec<Event> {
    const SOME: usize = 200;
    let mut following = comb_host::events::Following::of(directory);
    let all: Vec<Event> = std::iter::from_fn(|| following.next_event()).collect();
    let missed = all.iter().filter(|event| behind.is_none_or(|behind| event.seq > behind)).count();
    all[all.len() - missed.min(SOME)..].to_vec()
}

fn happened(event: &Event) -> Message {
    let Event { seq, at_ms, text, what, .. } = event;
    let kind = serde_json::to_value(what).ok().and_then(|what| Some(what["kind"].as_str()?.to_owned()));
    let object = json!({ "seq": seq, "at_ms": at_ms, "kind": kind, "cell": what.cell(), "text": text });
    Message::default().event("event").id(seq.to_string()).data(object.to_string())
}

// ── acting ──

async fn act(
    State(office): State<Office>,
    headers: HeaderMap,
    Path((cell, action)): Path<(String, String)>,
) -> Response {
    if let Err(refusal) = office.pass.check(&headers, Right::Act) {
        return refusal.into_response();
    }
    let no = |status, error: String| answer(status, &json!({ "error": error }));
    let Ok(cell) = cell.parse::<u32>() else {
        return no(StatusCode::NOT_FOUND, "a cell has a number".to_owned());
    };
    let request = match action.as_str() {
        "kill" => Request::Kill { cell, hold: false },
        "hang" => Request::Hang { cell },
        "drain" => Request::Drain { cell, drain: true },
        "restart" => Request::Restart { cell },
        _ => return no(StatusCode::NOT_FOUND, "a cell can be killed, hung, drained or restarted".to_owned()),
    };
    let directory = office.directory.clone();
    let asked = tokio::task::spawn_blocking(move || control::ask_within(&directory, &request, ACTION_LIMIT));
    match asked.await {
        Ok(Ok(Reply::Refused(why))) => no(StatusCode::CONFLICT, why),
        Ok(Ok(reply)) => match sentence(cell, &reply) {
            Some(done) => answer(StatusCode::OK, &json!({ "done": done })),
            None => no(StatusCode::BAD_GATEWAY, "the agent is of another version".to_owned()),
        },
        Ok(Err(error)) => no(StatusCode::BAD_GATEWAY, error.to_string()),
        Err(_) => no(StatusCode::INTERNAL_SERVER_ERROR, "it was not done: see `comb log`".to_owned()),
    }
}

fn sentence(cell: u32, reply: &Reply) -> Option<String> {
    let millis = |ns: u64| format!("{}.{} ms", ns / 1_000_000, ns / 100_000 % 10);
    Some(match reply {
        Reply::Killed(Killed { peers, noticed, recovered, .. }) => {
            let at_work =
                recovered.last().map(|last| format!("; at work again after {}", millis(last.resumed_ns)));
            format!("cell {cell}: {} of {peers} noticed{}", noticed.len(), at_work.unwrap_or_default())
        }
        Reply::Started { incarnation, took_ns, .. } => {
            format!("cell {cell} is up again after {}, incarnation {incarnation}", millis(*took_ns))
        }
        Reply::Done => format!("cell {cell} gets no new tasks"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
