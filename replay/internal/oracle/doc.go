// Package oracle finds the folders of reference results and sample sessions
// that may lie beside the repository. They are not part of it: a test that
// needs one is skipped where it is absent, unless SESSIOND_REQUIRE_SHARED=1
// says that it must be there. It is imported by tests only and owns nothing.
//
// The folders are read, never written, by any number of tests at once.
package oracle
