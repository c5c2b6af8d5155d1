//! Names of numbers, and rates.

use core::ffi::{CStr, c_char, c_int};

/// Returns the row of a table, or `unknown` for a number that is not in it.
fn row(table: &[&'static CStr], number: u32, unknown: &'static CStr) -> *const c_char {
    let row = usize::try_from(number).ok().and_then(|number| table.get(number));
    row.copied().unwrap_or(unknown).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: u32) -> *const c_char {
    #[rustfmt::skip]
    const NAMES: &[&CStr] = &[
        c"success", c"local length error", c"local QP operation error",
        c"local EE context operation error", c"local protection error", c"work request flushed",
        c"memory window bind error", c"bad response error", c"local access error",
        c"remote invalid request error", c"remote access error", c"remote operation error",
        c"transport retry counter exceeded", c"RNR retry counter exceeded",
        c"local RDD violation error", c"remote invalid RD request", c"aborted by the remote end",
        c"invalid EE context number", c"invalid EE context state", c"fatal error",
        c"response timeout error", c"general error", c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    row(NAMES, status, c"unknown status")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(event: u32) -> *const c_char {
    #[rustfmt::skip]
    const NAMES: &[&CStr] = &[
        c"CQ error", c"QP fatal error", c"QP request error", c"QP access error",
        c"communication established", c"send queue drained", c"path migrated",
        c"path migration error", c"device fatal error", c"port active", c"port error", c"LID change",
        c"P_Key change", c"SM change", c"SRQ error", c"SRQ limit reached", c"last WQE reached",
        c"client reregistration", c"GID table change", c"WQ fatal error",
    ];
    row(NAMES, event, c"unknown event")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_port_state_str(state: u32) -> *const c_char {
    const NAMES: &[&CStr] =
        &[c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];
    row(NAMES, state, c"invalid state")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(node: u32) -> *const c_char {
    #[rustfmt::skip]
    const NAMES: &[&CStr] = &[
        c"unknown", c"InfiniBand channel adapter", c"InfiniBand switch", c"InfiniBand router",
        c"iWARP NIC", c"usNIC", c"usNIC UDP", c"unspecified",
    ];
    row(NAMES, node, c"unknown")
}

/// The static rates of IBTA (section 9.11.1 and later annexes): number, multiple of 2.5 Gb/s (zero if it is not a
/// multiple), Mb/s.
const RATES: &[(u32, c_int, c_int)] = &[
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 0, 14_062),
    (12, 0, 56_250),
    (13, 0, 112_500),
    (14, 0, 168_750),
    (15, 0, 25_781),
    (16, 0, 103_125),
    (17, 0, 206_250),
    (18, 0, 309_375),
    (19, 0, 28_125),
    (20, 0, 53_125),
    (21, 0, 425_000),
    (22, 0, 637_500),
    (23, 0, 850_000),
    (24, 0, 1_275_000),
];

/// Returns the first row of [`RATES`] that `matches`.
fn rate(matches: impl Fn(&(u32, c_int, c_int)) -> bool) -> Option<(u32, c_int, c_int)> {
    RATES.iter().copied().find(|rate| matches(rate))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mult(number: u32) -> c_int {
    rate(|rate| rate.0 == number && rate.1 != 0).map_or(-1, |rate| rate.1)
}

#[unsafe(no_mangle)]
extern "C" fn mult_to_ibv_rate(multiple: c_int) -> u32 {
    rate(|rate| rate.1 == multiple && multiple != 0).map_or(0, |rate| rate.0)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mbps(number: u32) -> c_int {
    rate(|rate| rate.0 == number).map_or(-1, |rate| rate.2)
}

#[unsafe(no_mangle)]
extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> u32 {
    rate(|rate| rate.2 == mbps).map_or(0, |rate| rate.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: *const c_char) -> &'static str {
        // SAFETY: every row of a table is a string that lives as long as the program.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap()
    }

    #[test]
    fn numbers_have_the_names_of_verbs_h() {
        assert_eq!(text(ibv_wc_status_str(12)), "transport retry counter exceeded");
        assert_eq!(text(ibv_wc_status_str(99)), "unknown status");
        assert_eq!(text(ibv_event_type_str(16)), "last WQE reached");
        assert_eq!(text(ibv_port_state_str(4)), "active");
        assert_eq!(text(ibv_node_type_str(1)), "InfiniBand channel adapter");
        assert_eq!(text(ibv_node_type_str(u32::MAX)), "unknown");
    }

    #[test]
    fn rates_are_converted_to_numbers_and_back() {
        for &(number, multiple, mbps) in RATES {
            assert_eq!((ibv_rate_to_mbps(number), mbps_to_ibv_rate(mbps)), (mbps, number));
            let expected = if multiple == 0 { (-1, 0) } else { (multiple, number) };
            assert_eq!((ibv_rate_to_mult(number), mult_to_ibv_rate(multiple)), expected);
        }
        assert_eq!((ibv_rate_to_mbps(1), mbps_to_ibv_rate(7)), (-1, 0));
    }
}
