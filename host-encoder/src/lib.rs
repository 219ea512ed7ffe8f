//! Trimmable gradient packets: codec and packet format
