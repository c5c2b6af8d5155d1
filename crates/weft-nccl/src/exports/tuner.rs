//! The structures of the tuner interface, versions 2 to 5. They are exported from a library of their own, `libnccl-tuner-weft.so`:
//! NCCL treats a communicator with any tuner differently from one without, so the net plugin alone must not bring one.

use core::ffi::{c_char, c_int, c_void};

use weft_nccl_abi::tuner::{
    ncclNvlDomainInfo_v5_t, ncclTuner_v2_t, ncclTuner_v3_t, ncclTuner_v4_t, ncclTuner_v5_t,
    ncclTunerConstants_v5_t,
};
use weft_nccl_abi::{ncclDebugLogger_t, ncclResult_t};

use super::{Exported, call, write};
use crate::log;
use crate::tuner::{Answer, Costs, Tuner};

/// The name of the tuner in NCCL's log.
const NAME: *const c_char = c"Weft".as_ptr();

/// The largest number of algorithms or protocols that a table is believed to have.
const MAX_SIDE: usize = 64;

/// Version 2's form.
unsafe extern "C" fn init(
    ranks: usize,
    nodes: usize,
    logger: ncclDebugLogger_t,
    context: *mut *mut c_void,
) -> ncclResult_t {
    log::set_logger(logger);
    call(|| {
        let tuner = Box::into_raw(Box::new(Tuner::open(ranks, nodes)));
        // SAFETY: NCCL passes room for the context.
        unsafe { write(context, tuner.cast()) };
        Ok(())
    })
}

/// Version 5's form. NCCL's constants stay as they are.
unsafe extern "C" fn init_of_communicator(
    context: *mut *mut c_void,
    _communicator: u64,
    ranks: usize,
    nodes: usize,
    logger: ncclDebugLogger_t,
    _domains: *mut ncclNvlDomainInfo_v5_t,
    _constants: *mut ncclTunerConstants_v5_t,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe { init(ranks, nodes, logger, context) }
}

/// Returns the plan's answer for a call.
///
/// # Safety
/// [`init`] returned the context, and it is not destroyed; or it is null.
unsafe fn answer(context: *mut c_void, function: c_int, bytes: usize) -> Answer {
    // SAFETY: guaranteed by the caller.
    let tuner = unsafe { context.cast::<Tuner>().as_ref() };
    tuner.map(|tuner| tuner.answer(function, bytes)).unwrap_or_default()
}

/// Version 2's form: an algorithm is named with its protocol or not at all. Where NCCL could use the network's or NVLink's own
/// reductions, which a plan does not compare, it chooses.
unsafe extern "C" fn name_choice(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    collnet: c_int,
    nvls: c_int,
    _operations: c_int,
    algorithm: *mut c_int,
    protocol: *mut c_int,
    channels: *mut c_int,
) -> ncclResult_t {
    call(|| {
        // SAFETY: NCCL passes its context, and room for the results.
        unsafe {
            let answer = answer(context, function, bytes);
            if let (Some(row), Some(column), 0, 0) =
                (answer.algorithm, answer.protocol, collnet, nvls)
            {
                write(algorithm, c_int::try_from(row).unwrap_or(-1));
                write(protocol, c_int::try_from(column).unwrap_or(-1));
            }
            answer.channels.into_iter().for_each(|count| write(channels, count));
        }
        Ok(())
    })
}

/// Version 3's form.
unsafe extern "C" fn change_costs(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    _operations: c_int,
    costs: *mut *mut f32,
    algorithms: c_int,
    protocols: c_int,
    channels: *mut c_int,
) -> ncclResult_t {
    call(|| {
        // SAFETY: NCCL passes its context, a table of `algorithms` rows of `protocols` costs behind the pointer, whatever its type
        // says, and room for the number of channels.
        unsafe {
            let answer = answer(context, function, bytes);
            let side = |count: c_int| usize::try_from(count).ok().filter(|&side| side <= MAX_SIDE);
            if let (Some(rows), Some(columns), false) =
                (side(algorithms), side(protocols), costs.is_null())
            {
                let table = core::slice::from_raw_parts_mut(costs.cast::<f32>(), rows * columns);
                Costs::new(table, columns).apply(answer);
            }
            answer.channels.into_iter().for_each(|count| write(channels, count));
        }
        Ok(())
    })
}

/// Version 4's form.
unsafe extern "C" fn change_costs_of_buffers(
    context: *mut c_void,
    function: c_int,
    bytes: usize,
    operations: c_int,
    costs: *mut *mut f32,
    algorithms: c_int,
    protocols: c_int,
    _registered: c_int,
    channels: *mut c_int,
) -> ncclResult_t {
    // SAFETY: guaranteed by NCCL.
    unsafe {
        change_costs(context, function, bytes, operations, costs, algorithms, protocols, channels)
    }
}

unsafe extern "C" fn destroy(context: *mut c_void) -> ncclResult_t {
    call(|| {
        if !context.is_null() {
            // SAFETY: NCCL passes the context of `init`, and does not use it afterwards.
            drop(unsafe { Box::from_raw(context.cast::<Tuner>()) });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
static ncclTunerPlugin_v2: Exported<ncclTuner_v2_t> = Exported(ncclTuner_v2_t {
    name: NAME,
    init: Some(init),
    getCollInfo: Some(name_choice),
    destroy: Some(destroy),
});

#[unsafe(no_mangle)]
static ncclTunerPlugin_v3: Exported<ncclTuner_v3_t> = Exported(ncclTuner_v3_t {
    name: NAME,
    init: Some(init),
    getCollInfo: Some(change_costs),
    destroy: Some(destroy),
});

#[unsafe(no_mangle)]
static ncclTunerPlugin_v4: Exported<ncclTuner_v4_t> = Exported(ncclTuner_v4_t {
    name: NAME,
    init: Some(init),
    getCollInfo: Some(change_costs_of_buffers),
    destroy: Some(destroy),
});

#[unsafe(no_mangle)]
static ncclTunerPlugin_v5: Exported<ncclTuner_v5_t> = Exported(ncclTuner_v5_t {
    name: NAME,
    init: Some(init_of_communicator),
    getCollInfo: Some(change_costs_of_buffers),
    finalize: Some(destroy),
});
