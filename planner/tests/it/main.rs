// SPDX-License-Identifier: Apache-2.0
//! Tests of the planner as others use it.

mod papers;
