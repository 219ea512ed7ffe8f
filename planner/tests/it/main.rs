//! Tests of the planner as others use it.

mod papers;
