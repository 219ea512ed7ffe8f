//! P4Runtime messages, client and server
