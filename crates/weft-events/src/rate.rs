//! The rate of a counted event.

/// Returns the number per second of `count` things in `seconds`, to one decimal.
#[expect(clippy::cast_precision_loss, reason = "a rate has no nine digits")]
pub fn per_second(count: u64, seconds: f64) -> f64 {
    (count as f64 / seconds * 10.0).round() / 10.0
}

#[test]
fn a_rate_has_one_decimal() {
    assert_eq!(per_second(174, 10.372_704_628).to_string(), "16.8");
    assert_eq!(per_second(1, 100.0).to_string(), "0");
}
