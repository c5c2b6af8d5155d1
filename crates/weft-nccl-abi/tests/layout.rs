//! Sizes and offsets, bytes, as gcc 12 gives them to the structures of NCCL 2.30.7's headers (`net_v6.h` to `net_v12.h`, `tuner_v2.h` to `tuner_v5.h`) on a 64-bit host.

use core::mem::offset_of;

use weft_nccl_abi::*;

#[test]
fn the_structures_of_calls_have_nccl_s_sizes_and_offsets() {
    let sizes = [
        size_of::<ncclNet_v6_t>(),
        size_of::<ncclNet_v7_t>(),
        size_of::<ncclNet_v8_t>(),
        size_of::<ncclNet_v9_t>(),
        size_of::<ncclNet_v10_t>(),
        size_of::<ncclNet_v11_t>(),
        size_of::<ncclNet_v12_t>(),
    ];
    assert_eq!(sizes, [136, 152, 152, 160, 160, 176, 176]);
    let offsets = [
        offset_of!(ncclNet_v6_t, isend),
        offset_of!(ncclNet_v6_t, closeListen),
        offset_of!(ncclNet_v7_t, irecvConsumed),
        offset_of!(ncclNet_v8_t, test),
        offset_of!(ncclNet_v9_t, makeVDevice),
        offset_of!(ncclNet_v10_t, makeVDevice),
        offset_of!(ncclNet_v11_t, setNetAttr),
        offset_of!(ncclNet_v12_t, getProperties),
        offset_of!(ncclNet_v12_t, finalize),
        offset_of!(ncclNet_v12_t, setNetAttr),
    ];
    assert_eq!(offsets, [80, 128, 144, 104, 152, 152, 168, 24, 160, 168]);
}

#[test]
fn the_structures_of_properties_have_nccl_s_sizes_and_offsets() {
    let sizes = [
        size_of::<ncclNetProperties_v6_t>(),
        size_of::<ncclNetProperties_v7_t>(),
        size_of::<ncclNetProperties_v8_t>(),
        size_of::<ncclNetProperties_v9_t>(),
        size_of::<ncclNetProperties_v11_t>(),
        size_of::<ncclNetProperties_v12_t>(),
        size_of::<ncclNetVDeviceProps_v9_t>(),
        size_of::<ncclNetVDeviceProps_v12_t>(),
        size_of::<ncclNetCommConfig_v10_t>(),
        size_of::<ncclNetAttr_v11_t>(),
    ];
    assert_eq!(sizes, [48, 56, 64, 104, 112, 128, 20, 36, 4, 44]);
    let offsets = [
        offset_of!(ncclNetProperties_v6_t, latency),
        offset_of!(ncclNetProperties_v6_t, maxRecvs),
        offset_of!(ncclNetProperties_v7_t, netDeviceVersion),
        offset_of!(ncclNetProperties_v8_t, regIsGlobal),
        offset_of!(ncclNetProperties_v8_t, speed),
        offset_of!(ncclNetProperties_v9_t, forceFlush),
        offset_of!(ncclNetProperties_v9_t, vProps),
        offset_of!(ncclNetProperties_v9_t, maxP2pBytes),
        offset_of!(ncclNetProperties_v11_t, maxMultiRequestSize),
        offset_of!(ncclNetProperties_v12_t, vProps),
        offset_of!(ncclNetProperties_v12_t, maxP2pBytes),
        offset_of!(ncclNetProperties_v12_t, maxCollBytes),
        offset_of!(ncclNetProperties_v12_t, maxMultiRequestSize),
        offset_of!(ncclNetProperties_v12_t, railId),
        offset_of!(ncclNetProperties_v12_t, planeId),
    ];
    assert_eq!(offsets, [36, 44, 52, 28, 32, 32, 64, 88, 104, 64, 104, 112, 120, 124, 126]);
}

#[test]
fn the_structures_of_tuners_have_nccl_s_sizes_and_offsets() {
    use weft_nccl_abi::tuner::*;
    let sizes = [
        size_of::<ncclTuner_v2_t>(),
        size_of::<ncclTuner_v3_t>(),
        size_of::<ncclTuner_v4_t>(),
        size_of::<ncclTuner_v5_t>(),
        size_of::<ncclNvlDomainInfo_v5_t>(),
        size_of::<ncclTunerConstants_v5_t>(),
    ];
    assert_eq!(sizes, [32, 32, 32, 32, 12, 1152]);
    let offsets = [
        offset_of!(ncclTuner_v2_t, getCollInfo),
        offset_of!(ncclTuner_v5_t, finalize),
        offset_of!(ncclTunerConstants_v5_t, hwLatencies),
        offset_of!(ncclTunerConstants_v5_t, llMaxBws),
        offset_of!(ncclTunerConstants_v5_t, perChMaxTreeBws),
        offset_of!(ncclTunerConstants_v5_t, perChMaxNVLSTreeBws),
    ];
    assert_eq!(offsets, [16, 24, 168, 672, 960, 1056]);
}
