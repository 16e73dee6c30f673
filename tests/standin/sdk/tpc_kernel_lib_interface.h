/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of the SDK's header of this name, so that building against an SDK can be tried without one. Written from the
 * layout of the structures, apart from src/glue/interface.h, whose assertions hold for either: what only the other
 * declares is not used by accident. Plain C style, as the SDK's: enumerations without a fixed width, typedefs.
 */
#ifndef TPC_KERNEL_LIB_INTERFACE_H
#define TPC_KERNEL_LIB_INTERFACE_H

#include <stdint.h>

namespace tpc_lib_api {

static const unsigned MAX_SCALAR_PARAMS = 32, MAX_NODE_NAME = 64, MAX_INDEX_SPACE_DIM_SIZE = 5, MAX_TENSOR_DIM = 25;

typedef enum { DEVICE_ID_GAUDI = 1, DEVICE_ID_GRECO, DEVICE_ID_GAUDI2, DEVICE_ID_GAUDI3, DEVICE_ID_MAX } DeviceId;

typedef enum {
  GLUE_SUCCESS,
  GLUE_NODE_NOT_FOUND,
  GLUE_INSUFFICIENT_ISA_BUFFER,
  GLUE_INCOMPATIBLE_INPUT_COUNT,
  GLUE_INCOMPATIBLE_INPUT_SIZE,
  GLUE_INCOMPATIBLE_OUTPUT_COUNT,
  GLUE_INCOMPATIBLE_OUTPUT_SIZE,
  GLUE_INCOMPATIBLE_DATA_TYPE,
  GLUE_UNSUPPORTED_LAYER_CONFIGURATION,
  GLUE_INSUFFICIENT_AUX_BUFFER_SIZE,
  GLUE_UNSUPPORTED_API_VERSION = 12,
  GLUE_KERNEL_INVALID_SCALAR_ARGUMENT = 16,
  GLUE_INSUFFICIENT_ELF_BUFFER = 18,
  GLUE_UNSUPPORTED_5D_TENSORS = 20,
  GLUE_SIF_NULL_PTR = 22,
  GLUE_UNSUPPORTED_DYNAMIC_SHAPE,
  GLUE_FAILED = 400
} GlueCodeReturn;

#define MXK_STANDIN_BIT(name, bit) DATA_##name = 1 << bit
typedef enum {
  MXK_STANDIN_BIT(I4, 0),
  MXK_STANDIN_BIT(U4, 1),
  MXK_STANDIN_BIT(I8, 2),
  MXK_STANDIN_BIT(U8, 3),
  MXK_STANDIN_BIT(F8_152, 4),
  MXK_STANDIN_BIT(F8_143, 5),
  MXK_STANDIN_BIT(I16, 6),
  MXK_STANDIN_BIT(U16, 7),
  MXK_STANDIN_BIT(BF16, 8),
  MXK_STANDIN_BIT(F16, 9),
  MXK_STANDIN_BIT(I32, 10),
  MXK_STANDIN_BIT(U32, 11),
  MXK_STANDIN_BIT(F32, 12),
  MXK_STANDIN_BIT(I64, 13),
  MXK_STANDIN_BIT(U64, 14)
} TensorDataType;
#undef MXK_STANDIN_BIT

/* ---- names, parameters, tensors ---------------------------------------------------------------------------------- */

typedef struct {
  union {
    struct {
      uint64_t hashValue : 56, sharedObjectId : 8;
    };
    uint64_t Value;
  };
} UniqueShapeInferenceHash;

typedef struct {
  char name[MAX_NODE_NAME];
  UniqueShapeInferenceHash nameHash;
  union {
    struct {
      uint32_t supportsDynamicShapes : 1, supports64bit : 1, unused : 30;
    };
    uint32_t kernelProperties;
  };
} GuidInfo;

typedef struct {
  void* nodeParams;
  uint32_t nodeParamsSize;
} UserParams;

typedef struct {
  uint32_t dims;
  uint64_t maxSizes[MAX_TENSOR_DIM], minSizes[MAX_TENSOR_DIM];
  TensorDataType dataType;
} TensorGeometry;

typedef struct {
  char layout[MAX_TENSOR_DIM];
} TensorDataLayout;

typedef struct {
  TensorDataLayout* inputs;
  uint32_t inputTensorNr;
  TensorDataLayout* outputs;
  uint32_t outputTensorNr;
  TensorDataLayout* shapeTensors;
  uint32_t shapeTensorNr;
} NodeDataLayouts;

typedef struct {
  TensorGeometry geometry;
  struct {
    int8_t zeroPoint;
    double scale;
  } quantizationParam;
  TensorDataLayout layout;
  union {
    struct {
      uint32_t Reducible : 1, Null : 1, unused : 30;
    };
    uint32_t flags;
  };
  const void* pData;
  uint32_t permutation[MAX_TENSOR_DIM];
  uint32_t reserved[6];
} Tensor;

typedef struct {
  TensorGeometry geometry;
  void* pData;
  uint64_t bufferSize;
  union {
    struct {
      uint32_t sramAlloc : 1, noInit : 1, unused : 30;
    };
    uint32_t flags;
  };
  uint32_t reserved[6];
} AuxTensor;

/* ---- a kernel, instantiated -------------------------------------------------------------------------------------- */

typedef struct {
  uint32_t indexSpaceDim;
  float a, start_b, end_b;
  bool allRequired;
} DimIndexSpaceMapping;

typedef struct {
  union {
    struct {
      uint32_t allRequired : 1, memsetBeforeExecution : 1, inputsReusability : 16, inputReusabilityBinding : 1;
      uint32_t sparseAccess : 1, noRmwAccess : 1, fullyAccessedOnce : 1, fullyWritten : 1, unused : 9;
    };
    uint32_t Value;
  };
  DimIndexSpaceMapping mapping[MAX_TENSOR_DIM];
  union {
    float fValue;
    uint64_t u64Value;
  } memsetValue;
  uint32_t reserved[6];
} TensorAccessPattern;

typedef struct {
  int apiVersion;
  DeviceId deviceId;
  GuidInfo guid;
  UserParams nodeParams;
  Tensor* inputTensors;
  uint32_t inputTensorNr;
  Tensor* outputTensors;
  uint32_t outputTensorNr, maxAvailableTpc, useDeterministic;
  uint64_t uniqueNodeId;
  uint32_t debugFlags;
  uint16_t validInputTensors, validOutputTensors;
  uint32_t reserved[24];
} HabanaKernelParams;

typedef struct {
  void* kernelElf;
  uint32_t elfSize, scalarParams[MAX_SCALAR_PARAMS], paramsNr;
} DeviceKernel;

typedef struct {
  uint32_t indexSpaceRank;
  uint64_t indexSpaceGeometry[MAX_INDEX_SPACE_DIM_SIZE];
  TensorAccessPattern *inputTensorAccessPattern, *outputTensorAccessPattern;
  AuxTensor* auxiliaryTensors;
  uint32_t auxiliaryTensorNr;
  DeviceKernel kernel;
  uint32_t preferredSplitDim, reserved[15];
} HabanaKernelInstantiation;

/* ---- shape inference --------------------------------------------------------------------------------------------- */

typedef struct {
  uint32_t permutation[MAX_TENSOR_DIM];
} NodeTensorPermutation;

typedef struct {
  TensorGeometry geometry;
  uint32_t* hostAddress;
  uint32_t reserved[8];
} TensorShapeInfo;

typedef struct {
  int apiVersion;
  uint64_t uniqueNodeId;
  GuidInfo guid;
  TensorShapeInfo** inputTensors;
  uint32_t inputTensorsNr;
  UserParams nodeParams;
  uint32_t outputTensorsNr;
  NodeTensorPermutation *inputPermutations, *outputPermutations;
  GuidInfo* pGuid;
  uint32_t maxAvailableTpc, reserved[3];
} ShapeInferenceParams;

typedef struct {
  TensorShapeInfo** outputTensors;
  uint32_t *invalidMask, reserved[6];
} ShapeInferenceOutput;

typedef GlueCodeReturn (*pfnGetKernelGuids)(DeviceId, uint32_t*, GuidInfo*);
typedef GlueCodeReturn (*pfnInstantiateTpcKernel)(const HabanaKernelParams*, HabanaKernelInstantiation*);
typedef GlueCodeReturn (*pfnGetSupportedDataLayout)(const HabanaKernelParams*, NodeDataLayouts*, uint32_t*);
typedef GlueCodeReturn (*pfnGetShapeInference)(DeviceId, const ShapeInferenceParams*, ShapeInferenceOutput*);
typedef uint64_t (*pfnGetLibVersion)();

}  // namespace tpc_lib_api

#endif
