"""Reports: verdicts as a JSON document, as text, as JUnit XML and as an HTML page."""
