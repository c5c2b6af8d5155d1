//! The device daemon's events in its log.

use weft_events::{
    ClientsRefused, DevicesNotKept, DevicesRestored, LimitsReached, ProcessesEnded, ProcessesLost,
    QueuePairsFailed, per_second,
};
use weft_verbs::{CountedEvent, DaemonEvent, EventKind};

/// Logs an event.
pub(super) fn emit(event: &DaemonEvent) {
    match event {
        DaemonEvent::DevicesRestored { devices, file } => {
            let (devices, file) = (u64::from(*devices), file.display().to_string());
            DevicesRestored { devices, file }.emit();
        }
        DaemonEvent::Counted(counted) => emit_counted(counted),
    }
}

fn emit_counted(event: &CountedEvent) {
    let &CountedEvent { kind, cause, count, seconds, ref last } = event;
    let per_second = per_second(count, seconds);
    let (device, process, user) = (last.device.clone(), last.process.into(), last.user.into());
    match kind {
        EventKind::ClientRefused => {
            ClientsRefused { cause, count, seconds, per_second, device, process, user }.emit();
        }
        EventKind::LimitReached => {
            LimitsReached { cause, count, seconds, per_second, device, process, user }.emit();
        }
        EventKind::ProcessEnded => {
            ProcessesEnded { cause, count, seconds, per_second, device, process, user }.emit();
        }
        EventKind::ProcessLost => {
            ProcessesLost { cause, count, seconds, per_second, device, process, user }.emit();
        }
        EventKind::QueuePairFailed => {
            QueuePairsFailed { cause, count, seconds, per_second, device, process, user }.emit();
        }
        EventKind::ChangeNotKept => {
            DevicesNotKept { cause, count, seconds, per_second, user }.emit();
        }
    }
}
