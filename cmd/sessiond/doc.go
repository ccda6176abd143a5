// Command sessiond keeps the sessions of coding agents: it serves them,
// appends to them, and explains them offline.
//
// This package is the composition root: commands, flags, signals and exit
// codes, and nothing that another program could want. Every command is a
// newXCommand(*rootOptions) in a file of its own with RunE; none exits.
//
// # Flags
//
// A flag wins over its environment variable (SESSIOND_ and the flag's name in
// capitals, with _ for -), which wins over the default.
//
// # Output
//
// Data goes to the command's output, messages to its error output. Text that
// comes from a session, a path or another process reaches a terminal through
// package term only.
//
// # Daemon
//
// serve takes the lock of the state folder, opens the engine, and listens
// last. It stops in the opposite order: connections are answered and told
// goodbye, then the engine writes its index. A signal ends the context that
// every command runs under; a second one ends the process.
//
// # Clients
//
// attach and append go on over breaks. What attach was given is put out and
// flushed before its place is written, and the place is written before attach
// exits, also by a signal.
package main
