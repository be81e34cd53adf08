//! So many connections at a time, and none that says nothing: whoever opens thousands, and holds them, keeps nobody else out for long.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// A page takes two: its stream, and what it asks beside that.
const MOST_VISITS: usize = 128;
/// Who connects asks at once, and again within this time or anew.
const FIRST_WORD_LIMIT: Duration = Duration::from_secs(5);
/// What a browser says before its question.
const LONGEST_HEAD_BYTES: usize = 16 << 10;
/// Where no connection can be taken there is no sense in trying at once.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

/// Serves whoever comes, for ever.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(MOST_VISITS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(AFTER_A_FAILURE).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(FIRST_WORD_LIMIT)
                .max_buf_size(LONGEST_HEAD_BYTES);
            // What somebody says wrong has had its answer.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}
