//! The table of events.

use std::net::IpAddr;

use tracing::Level;

use crate::value::Loggable;
use crate::{EventRow, FieldRow};

/// Declares every event once: a structure with its fields, its level, its name in the log, its message, and the page of the
/// runbook.
macro_rules! events {
    ($(
        $(#[doc = $about:literal])+
        $event:ident = $level:ident $name:literal, $message:literal, page $page:literal;
        { $($(#[doc = $of:literal])+ $field:ident: $kind:ty,)+ }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $event {
                $($(#[doc = $of])+ pub $field: $kind,)+
            }

            impl $event {
                /// Writes the event to the log of this thread or process.
                pub fn emit(&self) {
                    tracing::event!(
                        target: "weft",
                        Level::$level,
                        event = $name,
                        $($field = self.$field.to_value(),)+
                        $message
                    );
                }

                #[cfg(test)]
                fn example() -> Self {
                    Self { $($field: <$kind as Loggable>::example(),)+ }
                }
            }
        )+

        /// All events, in the order of the table.
        pub const EVENTS: &[EventRow] = &[$(EventRow {
            name: $name,
            level: stringify!($level),
            about: concat!($($about),+).trim_ascii_start(),
            message: $message,
            fields: &[$(FieldRow {
                name: stringify!($field),
                about: concat!($($of),+).trim_ascii_start(),
            },)+],
            page: $page,
        },)+];

        #[cfg(test)]
        fn emit_examples() {
            $($event::example().emit();)+
        }
    };
}

events! {
    /// Paths of the overlay to a host went down in the last second.
    PathsDown = WARN "paths-down", "paths went down; packets take the others", page "path-down";
    {
        /// The other host
        peer: IpAddr,
        /// The numbers of the paths, separated by commas
        paths: String,
        /// Number of pairs of interfaces that use them
        pairs: u64,
    }

    /// Paths of the overlay to a host came back in the last second, or connections at rest forgot them.
    PathsUp = INFO "paths-up", "paths are up again", page "path-down";
    {
        /// The other host
        peer: IpAddr,
        /// The numbers of the paths, separated by commas
        paths: String,
        /// Number of pairs of interfaces that use them
        pairs: u64,
    }

    /// A host of the overlay accepts no connection.
    PeerLost = WARN "peer-lost", "a host accepts no connection", page "peer-lost";
    {
        /// The other host
        peer: IpAddr,
    }

    /// A host of the overlay that was lost accepts connections again.
    PeerFound = INFO "peer-found", "a host accepts connections again", page "peer-lost";
    {
        /// The other host
        peer: IpAddr,
    }

    /// A daemon holds a lease: a controller steers its routers, or a host is registered in its fleet.
    LeaseGained = INFO "lease-gained", "the lease is held", page "lease-unstable";
    {
        /// `routers` or `fleet`
        lease: &'static str,
        /// The holder's name
        holder: String,
    }

    /// A daemon holds a lease no more.
    LeaseLost = WARN "lease-lost", "the lease is held no more", page "lease-unstable";
    {
        /// `routers` or `fleet`
        lease: &'static str,
        /// The name of the daemon that has lost it
        holder: String,
        /// The other holder, or the reason; empty if neither is known
        reason: String,
    }

    /// A changed configuration is in force.
    ReloadApplied = INFO "reload-applied", "configuration reloaded", page "reload-refused";
    {
        /// `file` or `fleet`
        source: &'static str,
        /// Networks added or changed
        networks_set: u64,
        /// Networks removed
        networks_removed: u64,
        /// Ports added, those with another interface among them
        ports_added: u64,
        /// Ports removed, those with another interface among them
        ports_removed: u64,
        /// Ports whose policies changed
        ports_changed: u64,
        /// Routes added or changed
        routes_set: u64,
        /// Routes removed
        routes_removed: u64,
        /// Items of the file that changes by command override
        overridden: u64,
        /// Duration, seconds
        seconds: f64,
    }

    /// A changed configuration was refused; the former one stays in force.
    ReloadRefused = WARN "reload-refused", "configuration refused, the former one stays", page "reload-refused";
    {
        /// `file` or `fleet`
        source: &'static str,
        /// The reason
        error: String,
    }

    /// New keys are in use: a server's certificate, or the accepted identities of the overlay.
    KeysRotated = INFO "keys-rotated", "new keys are in use", page "keys-refused";
    {
        /// `certificate` or `identities`
        keys: &'static str,
        /// The file, or `fleet`
        source: String,
    }

    /// New keys cannot be used; the former ones stay in use.
    KeysUnusable = WARN "keys-unusable", "new keys cannot be used, the former ones stay", page "keys-refused";
    {
        /// `certificate`
        keys: &'static str,
        /// The file
        source: String,
        /// The reason
        error: String,
    }

    /// Key exchanges of other hosts were refused.
    KeysRefused = WARN "keys-refused", "key exchanges were refused", page "keys-refused";
    {
        /// The counter of `weft_vpc_encryption_total`
        cause: &'static str,
        /// Number in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
    }

    /// Packets of other hosts were refused: altered, forged, repeated, or in the clear where that may not be.
    PacketsRefused = WARN "packets-refused", "packets were not authentic", page "packets-not-authentic";
    {
        /// The counter of `weft_vpc_encryption_total`
        cause: &'static str,
        /// Number in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
    }

    /// Frames of tenants were dropped against their policies' intent.
    FramesDropped = WARN "frames-dropped", "frames were dropped", page "frames-dropped";
    {
        /// The cause, as in `weft_vpc_port_dropped_total` and `weft_vpc_dropped_total`
        cause: &'static str,
        /// Number in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
        /// The port with most of them; empty if they belong to no port
        port: String,
        /// Number of ports that dropped some
        ports: u64,
    }

    /// Frames of tenants were dropped because a policy of their port wants it.
    FramesDenied = INFO "frames-denied", "policies denied frames", page "port-drops-frames";
    {
        /// The cause, as in `weft_vpc_port_dropped_total`
        cause: &'static str,
        /// Number in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
        /// The port with most of them
        port: String,
        /// Number of ports that dropped some
        ports: u64,
    }

    /// A session with a BGP neighbour is established: routes are exchanged.
    BgpSessionUp = INFO "bgp-session-up", "a BGP session is established", page "bgp-session-down";
    {
        /// The neighbour's address
        neighbour: IpAddr,
        /// Its AS number
        asn: u64,
    }

    /// A session with a BGP neighbour has ended, or cannot be established; again for each other reason.
    BgpSessionDown = WARN "bgp-session-down", "a BGP session is down", page "bgp-session-down";
    {
        /// The neighbour's address
        neighbour: IpAddr,
        /// Its AS number
        asn: u64,
        /// The reason: a message of either end, or of TCP
        reason: String,
    }

    /// Updates of a BGP neighbour were refused for a fault; their routes count as withdrawn.
    RoutesRefused = WARN "routes-refused", "updates of a BGP neighbour were refused", page "bgp-session-down";
    {
        /// The neighbour's address
        neighbour: IpAddr,
        /// Its AS number
        asn: u64,
        /// The fault of the last one
        cause: String,
        /// Number of updates in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
    }

    /// A device daemon has found the devices of its predecessor.
    DevicesRestored = INFO "devices-restored", "the devices of the last daemon are back", page "device-not-kept";
    {
        /// Number of devices
        devices: u64,
        /// The file that keeps them
        file: String,
    }

    /// A device daemon did not make changes of its devices, because the file that keeps them could not be written.
    DevicesNotKept = WARN "devices-not-kept", "changes of devices cannot be kept", page "device-not-kept";
    {
        /// `file`: it cannot be written. `disk`: the disk does not answer
        cause: &'static str,
        /// Number of changes in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
        /// The user of the last one
        user: u64,
    }

    /// A device daemon refused programs: connections to it, or processes that wanted to attach to a device.
    ClientsRefused = WARN "clients-refused", "programs were refused", page "device-refuses";
    {
        /// `connections`, `protocol`, `no-such-device`, `permission`, `processes`, `busy`, `no-room`
        cause: &'static str,
        /// Number in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
        /// The device of the last one; empty if it named none
        device: String,
        /// The last process
        process: u64,
        /// Its user
        user: u64,
    }

    /// Limits of devices, or quotas of users, refused objects or memory.
    LimitsReached = WARN "limits-reached", "limits of devices or quotas of users were reached", page "device-refuses";
    {
        /// The limit, such as `queue-pairs` or `memory`, or the quota, such as `queue-pairs-per-user`
        cause: &'static str,
        /// Number of refusals in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
        /// The device of the last one; empty if devices themselves were refused
        device: String,
        /// The last process
        process: u64,
        /// Its user
        user: u64,
    }

    /// A device daemon ended processes: they broke its protocol, or their memory or device is gone.
    ProcessesEnded = WARN "processes-ended", "the daemon ended processes", page "device-ends-processes";
    {
        /// The reason
        cause: &'static str,
        /// Number in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
        /// The device of the last one
        device: String,
        /// The last process
        process: u64,
        /// Its user
        user: u64,
    }

    /// Processes that had queue pairs ended, or were killed, without destroying them.
    ProcessesLost = INFO "processes-lost", "processes ended with queue pairs", page "device-ends-processes";
    {
        /// `queue-pairs`
        cause: &'static str,
        /// Number in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
        /// The device of the last one
        device: String,
        /// The last process
        process: u64,
        /// Its user
        user: u64,
    }

    /// Queue pairs of a device daemon failed: a peer was given up, or one of both ends broke the rules.
    QueuePairsFailed = WARN "queue-pairs-failed", "queue pairs failed", page "queue-pairs-fail";
    {
        /// The status of the request that failed, such as `retry-exceeded`, or the peer's fault, such as `invalid-request`
        cause: &'static str,
        /// Number in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
        /// The device of the last one
        device: String,
        /// The process of the last one
        process: u64,
        /// Its user
        user: u64,
    }

    /// A monitor's agent does not answer.
    AgentLost = WARN "agent-lost", "an agent does not answer", page "host-silent";
    {
        /// The host, as the monitor's configuration names it
        host: String,
        /// The reason
        reason: String,
    }

    /// A monitor's agent that was lost answers again.
    AgentFound = INFO "agent-found", "an agent answers again", page "host-silent";
    {
        /// The host, as the monitor's configuration names it
        host: String,
    }

    /// The folders of this host's programs cannot be read.
    ProgramsUnread = WARN "programs-unread", "the programs of this host cannot be read", page "host-silent";
    {
        /// The reason
        reason: String,
    }

    /// The folders of this host's programs can be read again.
    ProgramsRead = INFO "programs-read", "the programs of this host can be read again", page "host-silent";
    {
        /// The time for which they could not be read, seconds
        seconds: f64,
    }

    /// An OpenTelemetry collector does not take metrics or events; they are sent again.
    ExportFailed = WARN "export-failed", "the collector takes nothing", page "collector-lost";
    {
        /// The collector's URL
        collector: String,
        /// The reason of the last failure
        reason: String,
        /// Number of failures in the interval
        count: u64,
        /// The interval, seconds
        seconds: f64,
        /// Number per second
        per_second: f64,
        /// Number of events that were dropped since the start, because there was no room
        dropped: u64,
    }

    /// A collector that took nothing takes metrics and events again.
    ExportResumed = INFO "export-resumed", "the collector takes metrics and events again", page "collector-lost";
    {
        /// The collector's URL
        collector: String,
        /// Number of events that were dropped since the start, because there was no room
        dropped: u64,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;
    use std::sync::{Arc, Mutex};

    use serde_json::Value;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// A log in memory.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn an_event_in_the_log_has_the_fields_of_its_row_and_no_others() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
        tracing::subscriber::with_default(subscriber, emit_examples);
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), EVENTS.len());
        for (line, row) in lines.iter().zip(EVENTS) {
            assert_eq!(line["level"], row.level, "{}", row.name);
            let fields = line["fields"].as_object().unwrap();
            assert_eq!(fields["event"], row.name);
            assert_eq!(fields["message"], row.message);
            let names: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
            let own = row.fields.iter().map(|field| field.name);
            assert_eq!(names, own.chain(["event", "message"]).collect(), "{}", row.name);
        }
        let dropped = lines.iter().find(|line| line["fields"]["event"] == "frames-dropped");
        assert_eq!(dropped.unwrap()["fields"]["count"], 7, "a number is a number");
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = EVENTS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), EVENTS.len());
    }
}
