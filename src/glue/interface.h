// SPDX-License-Identifier: Apache-2.0
//
// The binary interface between the graph compiler and a library of TPC kernels: six functions and the structures they
// exchange. Where the SDK is installed its own header is used; elsewhere this declaration is. The assertions at the
// end hold either way: they are what a library built here and a graph compiler built there agree on.
#pragma once

#include <cstddef>
#include <cstdint>

#if __has_include(<tpc_kernel_lib_interface.h>)
#include <tpc_kernel_lib_interface.h>
#elif __has_include(<habanalabs/tpc_kernel_lib_interface.h>)
#include <habanalabs/tpc_kernel_lib_interface.h>
#else

namespace tpc_lib_api {

constexpr uint32_t MAX_SCALAR_PARAMS = 32;
constexpr uint32_t MAX_NODE_NAME = 64;
constexpr uint32_t MAX_INDEX_SPACE_DIM_SIZE = 5;
constexpr uint32_t MAX_TENSOR_DIM = 25;

// The width of the enumerations is fixed: another release may send values that are not listed here.
enum DeviceId : uint32_t { DEVICE_ID_GAUDI = 1, DEVICE_ID_GRECO = 2, DEVICE_ID_GAUDI2 = 3, DEVICE_ID_GAUDI3 = 4 };

enum GlueCodeReturn : uint32_t {
  GLUE_SUCCESS = 0,
  GLUE_NODE_NOT_FOUND = 1,
  GLUE_INCOMPATIBLE_INPUT_COUNT = 3,
  GLUE_INCOMPATIBLE_INPUT_SIZE = 4,
  GLUE_INCOMPATIBLE_OUTPUT_COUNT = 5,
  GLUE_INCOMPATIBLE_OUTPUT_SIZE = 6,
  GLUE_INCOMPATIBLE_DATA_TYPE = 7,
  GLUE_UNSUPPORTED_LAYER_CONFIGURATION = 8,
  GLUE_INSUFFICIENT_AUX_BUFFER_SIZE = 9,
  GLUE_UNSUPPORTED_API_VERSION = 12,
  GLUE_KERNEL_INVALID_SCALAR_ARGUMENT = 16,
  GLUE_INSUFFICIENT_ELF_BUFFER = 18,
  GLUE_UNSUPPORTED_DYNAMIC_SHAPE = 23,
  GLUE_FAILED = 400,
};

enum TensorDataType : uint32_t {  // one bit each
  DATA_I8 = 1 << 2,
  DATA_U8 = 1 << 3,
  DATA_I16 = 1 << 6,
  DATA_U16 = 1 << 7,
  DATA_BF16 = 1 << 8,
  DATA_F16 = 1 << 9,
  DATA_I32 = 1 << 10,
  DATA_U32 = 1 << 11,
  DATA_F32 = 1 << 12,
  DATA_I64 = 1 << 13,
  DATA_U64 = 1 << 14,
};

struct TensorDataLayout {
  char layout[MAX_TENSOR_DIM];  // a letter for each dimension, not terminated; 'x' everywhere: any layout
};

struct NodeDataLayouts {
  TensorDataLayout* inputs;
  uint32_t inputTensorNr;
  TensorDataLayout* outputs;
  uint32_t outputTensorNr;
  TensorDataLayout* shapeTensors;
  uint32_t shapeTensorNr;
};

struct UniqueShapeInferenceHash {
  union {
    struct {
      uint64_t hashValue : 56;      // the library's
      uint64_t sharedObjectId : 8;  // the graph compiler's
    };
    uint64_t Value;
  };
};

struct GuidInfo {
  char name[MAX_NODE_NAME];
  UniqueShapeInferenceHash nameHash;
  union {
    struct {
      uint32_t supportsDynamicShapes : 1;
      uint32_t supports64bit : 1;
      uint32_t : 30;
    };
    uint32_t kernelProperties;
  };
};

struct UserParams {
  void* nodeParams;
  uint32_t nodeParamsSize;
};

union ElementValue {
  float fValue;
  uint32_t u32Value;
  uint64_t u64Value;
};

struct TensorGeometry {
  uint32_t dims;
  uint64_t maxSizes[MAX_TENSOR_DIM];  // elements, fastest dimension first
  uint64_t minSizes[MAX_TENSOR_DIM];  // equal to maxSizes unless the shape is dynamic
  TensorDataType dataType;
};

struct TensorQuantizationParam {
  union {
    int8_t zeroPoint;
    int8_t fp8bias;
  };
  double scale;
};

struct Tensor {
  TensorGeometry geometry;
  TensorQuantizationParam quantizationParam;
  TensorDataLayout layout;
  union {
    struct {
      uint32_t Reducible : 1;
      uint32_t Null : 1;  // an optional tensor that is not there
      uint32_t : 30;
    };
    uint32_t flags;
  };
  const void* pData;
  uint32_t permutation[MAX_TENSOR_DIM];
  uint32_t reserved[6];
};

struct AuxTensor {
  TensorGeometry geometry;  // out
  void* pData;              // in
  uint64_t bufferSize;      // bytes: in, what there is; out, what is needed
  union {
    struct {
      uint32_t sramAlloc : 1;
      uint32_t noInit : 1;  // scratch memory: pData is not read
      uint32_t : 30;
    };
    uint32_t flags;
  };
  uint32_t reserved[6];
};

// Index point i touches elements a*i + start_b to a*i + end_b.
struct DimIndexSpaceMapping {
  uint32_t indexSpaceDim;
  float a;
  float start_b;
  float end_b;
  bool allRequired;
};

struct TensorAccessPattern {
  union {
    struct {
      uint32_t allRequired : 1;  // any index point may touch any element
      uint32_t memsetBeforeExecution : 1;
      uint32_t inputsReusability : 16;
      uint32_t inputReusabilityBinding : 1;
      uint32_t sparseAccess : 1;
      uint32_t noRmwAccess : 1;
      uint32_t fullyAccessedOnce : 1;
      uint32_t fullyWritten : 1;
      uint32_t : 9;
    };
    uint32_t Value;
  };
  DimIndexSpaceMapping mapping[MAX_TENSOR_DIM];
  ElementValue memsetValue;
  uint32_t reserved[6];
};

struct HabanaKernelParams {
  int apiVersion;
  DeviceId deviceId;
  GuidInfo guid;
  UserParams nodeParams;
  Tensor* inputTensors;
  uint32_t inputTensorNr;
  Tensor* outputTensors;
  uint32_t outputTensorNr;
  uint32_t maxAvailableTpc;
  uint32_t useDeterministic;
  uint64_t uniqueNodeId;
  uint32_t debugFlags;
  uint16_t validInputTensors;
  uint16_t validOutputTensors;
  uint32_t reserved[24];
};

struct DeviceKernel {
  void* kernelElf;   // in
  uint32_t elfSize;  // bytes: in, what there is; out, what is needed
  uint32_t scalarParams[MAX_SCALAR_PARAMS];
  uint32_t paramsNr;
};

struct HabanaKernelInstantiation {
  uint32_t indexSpaceRank;
  uint64_t indexSpaceGeometry[MAX_INDEX_SPACE_DIM_SIZE];
  TensorAccessPattern* inputTensorAccessPattern;
  TensorAccessPattern* outputTensorAccessPattern;
  AuxTensor* auxiliaryTensors;  // 16 of them, whatever auxiliaryTensorNr says before the call
  uint32_t auxiliaryTensorNr;
  DeviceKernel kernel;
  uint32_t preferredSplitDim;
  uint32_t reserved[15];
};

struct NodeTensorPermutation {
  uint32_t permutation[MAX_TENSOR_DIM];
};

struct TensorShapeInfo {
  TensorGeometry geometry;
  uint32_t* hostAddress;
  uint32_t reserved[8];
};

struct ShapeInferenceParams {
  int apiVersion;
  uint64_t uniqueNodeId;
  GuidInfo guid;
  TensorShapeInfo** inputTensors;
  uint32_t inputTensorsNr;
  UserParams nodeParams;
  uint32_t outputTensorsNr;
  NodeTensorPermutation* inputPermutations;
  NodeTensorPermutation* outputPermutations;
  GuidInfo* pGuid;  // when set, used instead of guid
  uint32_t maxAvailableTpc;
  uint32_t reserved[3];
};

struct ShapeInferenceOutput {
  TensorShapeInfo** outputTensors;
  uint32_t* invalidMask;
  uint32_t reserved[6];
};

using pfnGetKernelGuids = GlueCodeReturn (*)(DeviceId, uint32_t* kernelCount, GuidInfo* guids);
using pfnInstantiateTpcKernel = GlueCodeReturn (*)(const HabanaKernelParams*, HabanaKernelInstantiation*);
using pfnGetSupportedDataLayout = GlueCodeReturn (*)(const HabanaKernelParams*, NodeDataLayouts*, uint32_t* count);
using pfnGetShapeInference = GlueCodeReturn (*)(DeviceId, const ShapeInferenceParams*, ShapeInferenceOutput*);
using pfnGetLibVersion = uint64_t (*)();

}  // namespace tpc_lib_api

#endif

namespace mxk::glue {

namespace api = tpc_lib_api;

// The sixth function is not in the public header of the SDK; what it fills is opaque here.
using GetSuggestedManipulation = api::GlueCodeReturn (*)(const api::HabanaKernelParams*, void* suggestion);

constexpr int kApiVersion = 1;
constexpr uint32_t kMaxAuxTensors = 16;

#define MXK_AT(type, field, offset) static_assert(offsetof(api::type, field) == (offset), #type "." #field)
#define MXK_SIZE(type, bytes) static_assert(sizeof(api::type) == (bytes), #type)

static_assert(api::MAX_SCALAR_PARAMS == 32 && api::MAX_NODE_NAME == 64 && api::MAX_INDEX_SPACE_DIM_SIZE == 5 &&
              api::MAX_TENSOR_DIM == 25);
static_assert(api::DEVICE_ID_GAUDI == 1 && api::DEVICE_ID_GAUDI2 == 3 && api::DEVICE_ID_GAUDI3 == 4);
static_assert(api::DATA_U8 == 8 && api::DATA_BF16 == 256 && api::DATA_I32 == 1024 && api::DATA_F32 == 4096);
static_assert(api::GLUE_SUCCESS == 0 && api::GLUE_NODE_NOT_FOUND == 1 && api::GLUE_INCOMPATIBLE_INPUT_COUNT == 3 &&
              api::GLUE_INCOMPATIBLE_INPUT_SIZE == 4 && api::GLUE_INCOMPATIBLE_OUTPUT_COUNT == 5 &&
              api::GLUE_INCOMPATIBLE_OUTPUT_SIZE == 6 && api::GLUE_INCOMPATIBLE_DATA_TYPE == 7 &&
              api::GLUE_UNSUPPORTED_LAYER_CONFIGURATION == 8 && api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE == 9 &&
              api::GLUE_UNSUPPORTED_API_VERSION == 12 && api::GLUE_KERNEL_INVALID_SCALAR_ARGUMENT == 16 &&
              api::GLUE_INSUFFICIENT_ELF_BUFFER == 18 && api::GLUE_UNSUPPORTED_DYNAMIC_SHAPE == 23 &&
              api::GLUE_FAILED == 400);

MXK_SIZE(GuidInfo, 80);
MXK_AT(GuidInfo, nameHash, 64);
MXK_AT(GuidInfo, kernelProperties, 72);
MXK_SIZE(TensorGeometry, 416);
MXK_AT(TensorGeometry, maxSizes, 8);
MXK_AT(TensorGeometry, minSizes, 208);
MXK_AT(TensorGeometry, dataType, 408);
MXK_SIZE(Tensor, 600);
MXK_AT(Tensor, quantizationParam, 416);
MXK_AT(Tensor, layout, 432);
MXK_AT(Tensor, flags, 460);
MXK_AT(Tensor, pData, 464);
MXK_AT(Tensor, permutation, 472);
MXK_AT(Tensor, reserved, 572);
MXK_SIZE(AuxTensor, 464);
MXK_AT(AuxTensor, pData, 416);
MXK_AT(AuxTensor, bufferSize, 424);
MXK_AT(AuxTensor, flags, 432);
MXK_SIZE(DimIndexSpaceMapping, 20);
MXK_SIZE(TensorAccessPattern, 536);
MXK_AT(TensorAccessPattern, mapping, 4);
MXK_AT(TensorAccessPattern, memsetValue, 504);
MXK_SIZE(HabanaKernelParams, 256);
MXK_AT(HabanaKernelParams, deviceId, 4);
MXK_AT(HabanaKernelParams, guid, 8);
MXK_AT(HabanaKernelParams, nodeParams, 88);
MXK_AT(HabanaKernelParams, inputTensors, 104);
MXK_AT(HabanaKernelParams, inputTensorNr, 112);
MXK_AT(HabanaKernelParams, outputTensors, 120);
MXK_AT(HabanaKernelParams, outputTensorNr, 128);
MXK_AT(HabanaKernelParams, maxAvailableTpc, 132);
MXK_AT(HabanaKernelParams, useDeterministic, 136);
MXK_AT(HabanaKernelParams, uniqueNodeId, 144);
MXK_AT(HabanaKernelParams, debugFlags, 152);
MXK_AT(HabanaKernelParams, validInputTensors, 156);
MXK_AT(HabanaKernelParams, validOutputTensors, 158);
MXK_AT(HabanaKernelParams, reserved, 160);
MXK_SIZE(DeviceKernel, 144);
MXK_AT(DeviceKernel, elfSize, 8);
MXK_AT(DeviceKernel, scalarParams, 12);
MXK_AT(DeviceKernel, paramsNr, 140);
MXK_SIZE(HabanaKernelInstantiation, 288);
MXK_AT(HabanaKernelInstantiation, indexSpaceGeometry, 8);
MXK_AT(HabanaKernelInstantiation, inputTensorAccessPattern, 48);
MXK_AT(HabanaKernelInstantiation, outputTensorAccessPattern, 56);
MXK_AT(HabanaKernelInstantiation, auxiliaryTensors, 64);
MXK_AT(HabanaKernelInstantiation, auxiliaryTensorNr, 72);
MXK_AT(HabanaKernelInstantiation, kernel, 80);
MXK_AT(HabanaKernelInstantiation, preferredSplitDim, 224);
MXK_SIZE(ShapeInferenceParams, 176);
MXK_AT(ShapeInferenceParams, uniqueNodeId, 8);
MXK_AT(ShapeInferenceParams, guid, 16);
MXK_AT(ShapeInferenceParams, inputTensors, 96);
MXK_AT(ShapeInferenceParams, inputTensorsNr, 104);
MXK_AT(ShapeInferenceParams, nodeParams, 112);
MXK_AT(ShapeInferenceParams, outputTensorsNr, 128);
MXK_AT(ShapeInferenceParams, pGuid, 152);
MXK_AT(ShapeInferenceParams, maxAvailableTpc, 160);
MXK_SIZE(TensorShapeInfo, 456);
MXK_SIZE(ShapeInferenceOutput, 40);
MXK_SIZE(NodeDataLayouts, 48);
MXK_SIZE(TensorDataLayout, 25);

#undef MXK_AT
#undef MXK_SIZE

}  // namespace mxk::glue
