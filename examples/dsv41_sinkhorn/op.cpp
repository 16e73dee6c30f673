// SPDX-License-Identifier: Apache-2.0
//
// torch.ops.custom_op.dsv41_sinkhorn(Tensor logits, int iterations) -> Tensor. Schema, checks and output follow from
// glue.inc.
#include "torch/ops.h"

MXK_OP(dsv41_sinkhorn);
