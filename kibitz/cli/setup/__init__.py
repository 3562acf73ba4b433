"""What is installed here, and what there is: extras, `kibitz doctor`, `kibitz list`."""
