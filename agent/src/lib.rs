//! Host agent: transport, rate control, collectives
