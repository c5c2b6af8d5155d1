//! Goodput: payload that reached its receivers, over the run's time.

use serde::Serialize;

use super::Distribution;
use crate::time::SimSpan;

/// Goodput of the hosts that received anything, Gb/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Goodput {
    /// The goodput of each receiving host.
    pub per_host_gbps: Distribution,
    /// The goodput of all hosts together.
    pub total_gbps: f64,
}

impl Goodput {
    /// Returns the goodput of hosts that received `bytes` each within `elapsed`.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a simulation")]
    pub fn new(bytes: &[u64], elapsed: SimSpan) -> Self {
        let nanos = elapsed.as_secs_f64() * 1e9;
        let received = bytes.iter().filter(|&&bytes| bytes > 0);
        let mut rates: Vec<f64> = received.map(|&bytes| bytes as f64 * 8.0 / nanos).collect();
        let per_host_gbps = Distribution::of(&mut rates);
        Self { per_host_gbps, total_gbps: rates.iter().sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_received_nothing_do_not_count() {
        let got = Goodput::new(&[0, 1_250, 3_750], SimSpan::from_picos(1_000_000));
        assert_eq!(
            (got.per_host_gbps.count, got.per_host_gbps.mean, got.total_gbps),
            (2, 20.0, 40.0)
        );
    }
}
