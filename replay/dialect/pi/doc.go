// Package pi understands the sessions of pi and prime-agent, format versions
// 1 to 3.
//
// # Format
//
// The first object of type "session" with a string id is the header. Every
// other object is an entry with type, id, parentId and timestamp; entries
// form a tree, and the last entry of the file is the leaf. Version 1 has no
// links: there entries follow each other, and compactions name the first kept
// entry by its index among the lines that parse. Versions below 3 write the
// message role "custom" as "hookMessage".
//
//	message                message{role, ...}: a slot of both views
//	custom_message         a generated message: a slot of both views
//	branch_summary         a generated message where the summary is not empty
//	compaction             transcript: a marker; context: everything before the
//	                       first kept entry gives way to a summary message
//	context_edit           drops or rewrites a message of the context
//	child_usage_attributed replaces the usage of an assistant message
//	model_change, thinking_level_change, service_tier_change: settings
//	session_info, session_state: the session's name and status
//	anything else          a place in the tree that shows nothing
//
// # Sources of the rules
//
// The readers of prime-agent and of pi 1.6.0, by their results: the context
// view gives what prime-agent gives, and honours what only newer pi writes
// (context_edit, compaction.systemMessage) as pi 1.6.0 does. Where a reader
// would lose text that is in the file (a chain that is broken), the context
// stays as the reader has it and the transcript goes on by file order behind
// a gap marker.
//
// # Memory
//
// About 80 bytes an entry and 8 more for each view in use, in pages, no text.
package pi
