//! What the programs need from whoever loads them.
