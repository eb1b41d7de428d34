// Package versions shows on real brokers which versions of Kafka a mirror works between: for
// each row of its matrix it starts a source and a destination, mirrors live producers of every
// kind, restarts the source so that its leader epochs rise, stops the mirror, and compares the
// logs byte for byte. Beside the matrix it upgrades a destination under load: its features, and
// its brokers one by one, with the sidecars running.
//
// By default one row runs, with the upgrade of a broker and of the features behind it.
// MIRROR_FULL=1 runs the whole matrix (`make versions`), MIRROR_VERSIONS picks rows by a regular
// expression of their names. The results are printed as a table, written to the file that
// MIRROR_VERSIONS_REPORT names, and put into docs/versions.md if that is asked for with
// MIRROR_VERSIONS_DOC=1.
//
// There are only tests here. They need a JDK and Maven, and are skipped with -short.
package versions
