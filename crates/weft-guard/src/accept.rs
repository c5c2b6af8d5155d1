//! The connections of a server: each is served on a task of its own, and their number is limited, so that silent clients
//! delay no others.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Semaphore;

/// The time until another connection is accepted after an error.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Serves the connections that `poll_accept` returns, at most `max_connections` at a time; more wait. Each has a task of
/// its own. It never returns, and sets no time limit to a connection: `serve` does.
pub async fn serve_each<C, S: Future<Output = ()> + Send + 'static>(
    max_connections: usize,
    mut poll_accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<C>>,
    serve: impl Fn(C) -> S,
) {
    let permits = Arc::new(Semaphore::new(max_connections));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let Ok(connection) = poll_fn(&mut poll_accept).await else {
            // The process has no descriptors left: some are released soon.
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let served = serve(connection);
        tokio::spawn(async move {
            served.await;
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const MAX_CONNECTIONS: usize = 128;

    /// Runs all tasks of this thread until none can continue without an event.
    async fn run_tasks() {
        for _ in 0..16 * MAX_CONNECTIONS {
            tokio::task::yield_now().await;
        }
    }

    /// The attacker: a host that opens connections and sends nothing.
    #[test]
    fn silent_connections_delay_no_other_until_the_maximum_is_open() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (served, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
            let mut waiting = 300;
            let poll_accept = move |_: &mut Context<'_>| {
                if waiting == 0 {
                    return Poll::Pending;
                }
                waiting -= 1;
                Poll::Ready(Ok(()))
            };
            let count = || served.load(Ordering::Relaxed);
            let (begun, end) = (Arc::clone(&served), Arc::clone(&ends));
            let serve = move |()| {
                let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
                async move {
                    begun.fetch_add(1, Ordering::Relaxed);
                    end.acquire().await.unwrap().forget();
                }
            };
            tokio::spawn(serve_each(MAX_CONNECTIONS, poll_accept, serve));
            run_tasks().await;
            assert_eq!(count(), 128, "all are open at once, and no more");
            for (closed, want) in [(1, 129), (10, 139), (200, 300)] {
                ends.add_permits(closed);
                run_tasks().await;
                assert_eq!(count(), want, "after {closed} more were closed");
            }
        });
    }
}
